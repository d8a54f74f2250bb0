// SiteMessage: what endpoints of sites send each other over one connection per pair, after the
// handshake. The handshake has shown both ends the other's SiteMember. A frame is a u32 length, and
// that many bytes for decode_site_message().
//
// SiteCore sends and takes all messages up to SiteAsk: the shell passes those on, whole. The shell
// itself sends and takes SiteBlock (at SiteCore::Serve, for SiteCore::Arrived), the two messages
// about states (at SiteCore::FetchState), and SiteDenial. On a slow line SiteBlock and
// SiteStateBlock must wait behind all other messages: what decides must not stand in a queue of
// payloads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ring/sites/site_merge.h"

namespace dlaunch {

// Of one attempt to decide a merge: the higher one wins. {}: none.
struct SiteBallot {
  std::uint64_t count = 0;
  std::int32_t site = -1;
  auto operator<=>(const SiteBallot&) const = default;
};

struct SiteSeen {  // a peer that the sender is connected to, and hears
  SiteMember member;
  MergeId held;
  bool operator==(const SiteSeen&) const = default;
};

struct SiteRate {
  std::int32_t from = 0;
  std::uint64_t bytes_per_s = 0;
  bool operator==(const SiteRate&) const = default;
};

// The sender, as it is now: at each change, and as a heartbeat. A later one replaces it.
struct SiteStatus {
  MergeId decided;                  // the newest merge that it knows
  MergeId held;                     // the newest that it has applied
  std::uint64_t hash = 0;           // of its outer state after `held`
  std::uint64_t given_up = 0;       // it has no vote in earlier epochs (SiteFound); 0: it votes
  std::uint64_t founding = 0;       // the epoch that it tries to found; 0: none
  std::vector<Contribution> whole;  // of these it has all bytes
  std::vector<SiteSeen> seen;
  std::vector<SiteRate> rates;  // how quickly payloads come from its peers
  // The proposer that it heard last, and how long ago; it may be the sender.
  MergeId slot;
  SiteBallot proposer;
  Duration heard{};
};

// Paxos about the merge `slot`, whose voters are the members of the merge before it.
struct SitePrepare {
  MergeId slot;
  SiteBallot ballot;
};
struct SiteVote {  // the merge that an acceptor has accepted
  SiteBallot ballot;
  Merge merge;
};
struct SitePromise {
  MergeId slot;
  SiteBallot ballot;
  std::optional<SiteVote> accepted;
};
struct SiteRefusal {  // the answer to a Prepare or Accept below the promise
  MergeId slot;
  SiteBallot ballot;    // that is refused
  SiteBallot promised;  // why
};
struct SiteAccept {
  SiteBallot ballot;
  Merge merge;
};
struct SiteAccepted {
  MergeId slot;
  SiteBallot ballot;
};
struct SiteDecided {
  Merge merge;
};

// The sender wants to begin an epoch with its own state. It needs the consent of all sites of the
// file; a site that consents has no vote in earlier epochs until the sender gives this up.
struct SiteFound {
  Merge merge;
};
struct SiteConsent {
  std::uint64_t epoch = 0;
};

// Send me these bytes of the payload; the receiver answers with SiteBlocks once it has them.
struct SiteAsk {
  Contribution payload;
  std::uint64_t offset = 0;
  std::uint32_t count = 0;
};
struct SiteBlock {
  Contribution payload;
  std::uint64_t offset = 0;
  std::string data;
};

// Send me your newest outer state, from byte `offset` on. `id` and `hash` name the state whose
// bytes before `offset` I have; {}: none. The answer begins at 0 if the receiver has another state
// now.
struct SiteStateAsk {
  MergeId id;
  std::uint64_t hash = 0;
  std::uint64_t offset = 0;
  std::uint32_t count = 0;
};
struct SiteStateBlock {  // total 0: the sender has no state to give
  MergeId id;
  std::uint64_t hash = 0;
  std::uint64_t total = 0;  // bytes of the whole state
  std::uint64_t offset = 0;
  std::string data;
};

// The last message of a connection: the sender lets no more come of it, because of this.
struct SiteDenial {
  std::string why;
};

using SiteMessage = std::variant<SiteStatus, SitePrepare, SitePromise, SiteRefusal, SiteAccept,
                                 SiteAccepted, SiteDecided, SiteFound, SiteConsent, SiteAsk,
                                 SiteBlock, SiteStateAsk, SiteStateBlock, SiteDenial>;

inline constexpr std::size_t kMostSiteBlock = 1 << 20;  // bytes of data in a message
inline constexpr std::size_t kMostSiteMessage = kMostSiteBlock + (16 << 10);

std::string encode(const SiteMessage& message);
// Errc::protocol: not exactly one message, or its values make no sense.
Result<SiteMessage> decode_site_message(std::string_view bytes);

}  // namespace dlaunch
