// SiteEndpoint: this site among the others. One thread serves the connections, runs SiteCore, and
// keeps the payloads of the newest merges. The rank that trains gives it contributions, and gets
// the merges in their order. A thin shell: SiteCore and PayloadSources decide.
//
// Connections: the site with the higher number connects to the one with the lower, and tries again
// for ever. A peer is cut off when it is silent for the time-out. A site that takes part in merges
// denies a connection to one that trains something else, or that is there twice.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/complaints.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/site_list.h"
#include "base/unique_fd.h"
#include "ring/sites/journal_writer.h"
#include "ring/sites/open_fds.h"
#include "ring/sites/outer_merge.h"
#include "ring/sites/site_connection.h"
#include "ring/sites/site_core.h"
#include "ring/sites/site_lookup.h"

namespace dlaunch {

// The outer state of a site: after which merge, its hash, and a copy (ring/sites/outer_merge.h).
struct SiteState {
  MergeId id;
  std::uint64_t hash = 0;
  SharedBytes copy;
};

// A site is mid-way in two frames at most: small ones wait behind such a block.
inline constexpr std::uint32_t kSiteBlock = 256 << 10;

struct SiteEndpointConfig {
  SiteList sites;
  int me = 0;
  Secret secret;
  std::string host;  // for messages
  Duration grace = std::chrono::seconds(10);
  Duration timeout = std::chrono::seconds(5);
  Duration wait = std::chrono::minutes(30);   // for a quorum
  Duration linger = std::chrono::minutes(1);  // after the end, for sites that were lost
  std::string journal;                        // a folder; "": none
  std::uint64_t most_payload = 0;             // bytes of the longest contribution
  std::uint64_t common = 0;                   // a hash of what must be equal at all sites
  SiteState state;                            // at the start

  // After so long a site says that others are missing.
  Duration missing_after() const {
    return std::min<Duration>(std::chrono::seconds(10), 2 * timeout);
  }
};

// What the rank that trains learns, in order.
struct SiteNews {
  enum class Kind {
    synced,   // it has the newest merge that the sites here know of
    merge,    // apply it, then call holds(): of the state before it, and with these payloads
    adopted,  // its state is the founder's: it has this id now. Needs no answer
    state,    // take this whole state instead, then call holds()
  };
  Kind kind = Kind::synced;
  MergeId id{};
  Merge merge{};
  std::vector<SharedBytes> payloads{};  // in the order of its contributions
  bool ours = false;     // a contribution of this site is in it, of this life or one before
  bool earlier = false;  // of one before
  SharedBytes state{};
};

class SiteEndpoint final {
 public:
  static Result<std::unique_ptr<SiteEndpoint>> open(SiteEndpointConfig config);
  ~SiteEndpoint();
  SiteEndpoint(const SiteEndpoint&) = delete;
  SiteEndpoint& operator=(const SiteEndpoint&) = delete;

  // One thread at a time.
  // The payload of this site for merge `id`, which does not change any more. No effect if that is
  // not the next one.
  void contribute(const MergeId& id, const std::shared_ptr<std::string>& bytes);
  // The state after the last news of a merge or a state.
  void holds(SiteState state);
  // The next news; nothing within `limit`. Without `syncs` it waits on where all is applied, for
  // the next merge.
  Result<std::optional<SiteNews>> next(Duration limit, bool syncs);
  // The newest merge that is known to be decided.
  MergeId decided() const;
  // Waits until the sites that are connected have what this one has; after the end of the training
  // also for the sites that were lost, so that they can come back and take it.
  void linger(Duration limit, bool ended);
  // Ends the thread, and the journal. Idempotent.
  void stop();
  // In a forked child, where this object can do no more: closes the copies of its descriptors.
  void close_in_child();

  struct Traffic {
    std::array<std::uint64_t, kLongestSiteList> sent{}, received{};
  };
  Traffic traffic() const;

 private:
  struct Link {  // to a site, or not proven yet
    Link(SiteConnection made, OpenFds& fds)
        : connection(std::move(made)), open(fds, connection.fd()) {}
    SiteConnection connection;
    OpenFds::Slot open;
    int site = -1;  // that it means; of an accepted one after its greeting
    TimePoint since = steady_now();
    std::string address;  // of an accepted one
    bool up = false;      // the core knows it
    std::optional<Error> over;
    SharedBytes giving;  // the state that the peer is taking
    MergeId giving_id;
    std::uint64_t giving_hash = 0;
  };
  struct Attempt {  // to connect
    TimePoint next{};
    Duration pause{};
    std::vector<SocketAddress> addresses{};  // that were found last
    std::size_t turn = 0;                    // of the addresses
    bool waits = false;                      // for addresses
    TimePoint fails_since = kNever;
    bool complained = false;  // since then
    TimePoint denied_since = kNever;
  };
  struct Fetch {  // of a whole state
    int from = -1;
    MergeId at_least{}, id{};
    std::uint64_t hash = 0, total = 0, asked = 0;
    std::string bytes{};
  };

  SiteEndpoint(SiteEndpointConfig config, UniqueFd listener, UniqueFd wake,
               std::uint64_t incarnation);
  void post(std::function<void()> job);

  // All below on the thread.
  void main();
  bool turn();
  TimePoint next_time() const;
  void wait();
  void take_posted();
  void let_in();
  void drop_oldest_stranger();
  void begin_attempts(TimePoint now);
  Result<void> connect(int site, Attempt& attempt);
  void failed(int site, Attempt& attempt, const std::string& why, TimePoint now);
  void move_links(TimePoint now);
  void end_silent(TimePoint now);
  TimePoint ends_at(const Link& link) const;
  void bury(TimePoint now);
  void mourn(const Link& link, TimePoint now);
  Result<void> on_frame(Link& link, std::string_view frame);
  Result<void> greeted(Link& link);
  Error deny(Link& link, const std::string& why);
  Error denied(const Link& link, const std::string& why);
  void welcomed(int site);
  Result<void> take(Link& link, SiteMessage message);
  void take_block(Link& link, const SiteBlock& block);
  void give_state(Link& link, const SiteStateAsk& ask);
  void take_state_block(Link& link, const SiteStateBlock& block);
  void ask_state();
  void give_fetch_up(int from);
  Link* link_of(int site);

  void happen(SiteCore::Event event);
  void run_core();  // performs what the events ask for
  // And tells the other thread, also of posted jobs that are carried out: together with what they
  // have changed.
  void settle(int carried_out = 0);
  void perform(SiteCore::Send& action);
  void perform(SiteCore::Serve& action);
  void perform(SiteCore::Receive& action);
  void perform(SiteCore::Check& action);
  void perform(SiteCore::Forget& action);
  void perform(SiteCore::Apply& action);
  void perform(SiteCore::Adopt& action);
  void perform(SiteCore::FetchState& action);
  void perform(SiteCore::Missing& action);
  void perform(SiteCore::GiveUp& action);
  void perform(SiteCore::Mismatch& action);
  void tell(SiteNews news);
  void fail(Error why);
  const std::string& name(int site) const {
    return config_.sites[static_cast<std::size_t>(site)].name;
  }
  std::string names(const std::vector<int>& sites) const;
  std::uint16_t port() const {
    return config_.sites[static_cast<std::size_t>(config_.me)].endpoint.port;
  }
  HandshakeIdentity identity() const;
  SiteGreeting greeting() const { return {me_.incarnation, config_.common}; }
  void write_down(const Merge& merge, const std::vector<SharedBytes>& payloads);

  const SiteEndpointConfig config_;
  const SiteMember me_;
  UniqueFd listener_, wake_;
  OpenFds open_fds_;
  OpenFds::Slot listens_, wakes_;
  SiteLookup lookup_;
  SiteCore core_;
  std::unique_ptr<JournalWriter> journal_;
  SiteState state_;
  std::map<Contribution, std::shared_ptr<std::string>> payloads_;
  std::map<Contribution, PayloadDigest> digests_;  // of those that come
  std::list<Link> links_;
  std::map<int, Attempt> attempts_;
  std::deque<SiteCore::Event> events_;
  std::optional<SiteNews> applying_;
  std::optional<Fetch> fetch_;
  // What the other sites of this training held last; {}: of one that was lost since.
  std::map<int, MergeId> held_by_;
  std::vector<pollfd> polled_;
  TimePoint accepts_at_{};  // a moment ago there was no descriptor
  Complaints complaints_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> posted_;
  int to_do_ = 0;  // those that have not been carried out
  std::deque<SiteNews> news_;
  std::optional<Error> failed_;
  MergeId decided_, held_;
  bool synced_ = false, stops_ = false;
  std::vector<int> lack_here_, lack_lost_;  // sites that lack what this one has: connected, or not
  Traffic traffic_;
  std::atomic<bool> lingers_ = false;
  std::thread thread_;
};

}  // namespace dlaunch
