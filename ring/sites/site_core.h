// SiteCore: the agreement between sites on their merges, for one endpoint. Pure: events in, actions
// out, and deadline() says when it wants a Clock event.
//
// The chain. Each merge names its members; they vote on the next merge, by Paxos with one slot per
// merge and the quorums of is_site_quorum(). So an epoch has one chain of merges, which goes on
// while a quorum of the newest merge's members is alive and connected. A restarted endpoint has no
// vote, and needs no disk: it takes the others' merges, or their state, and a later merge names it.
//
// The proposer prepares the next slot as soon as a merge is decided, while the sites still compute.
// It proposes what it holds in full once a quorum of members has contributed, and also each site
// that it waits for: the newest merge's members, and the sites that hold this merge or are a few
// merges behind, if it or a peer is connected to them. It waits for `grace` at most, counted from
// the quorum, and not at all for a silent site: no bytes came from it for three fifths of
// `timeout`, as from one that died without a word. Such a site is no member of the next merge. All
// contributions to a merge are of one kind: one that differs from those of a quorum is left out. An
// acceptor accepts only what it holds in full, so each payload of a decided merge is with a quorum.
// A proposer remains one until it is silent for the others, which hear of it from itself or from
// each other, or until it has proposed nothing for long after they had enough. Then the lowest site
// that is connected to a quorum takes over, and the others stand back the longer the higher they
// are.
//
// A founding begins an epoch where no chain can go on: at the first start, or after a quorum of
// members was lost. All sites of the file must be connected. The site with the highest state (the
// lowest site among equals) asks all others; a site consents only if no quorum of the newest
// members that it knows is alive, or if no site has the newest state and none can make it. It has
// no vote in earlier epochs from then on, unless the founder gives the attempt up. The epoch's
// number is larger than all that the sites know and not below the founder's start time, so no two
// epochs share a number even if no site remembers the older one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "ring/sites/payload_sources.h"
#include "ring/sites/site_merge.h"
#include "ring/sites/site_message.h"

namespace dlaunch {

// So many of the newest merges, and their payloads, wait for sites that are behind.
inline constexpr std::size_t kKeptMerges = 4;
// A site that takes a state keeps up to so many, until it has caught up.
inline constexpr std::size_t kMostKeptMerges = 16;

struct SiteCoreConfig {
  int sites = 1;  // of the file
  SiteMember me;
  MergeId held;            // of the outer state that the site starts with; {}: it was in no merge
  std::uint64_t hash = 0;  // of that state
  // Of an epoch that this endpoint founds, at least: its start time in ms since 1970. An endpoint
  // uses fewer than one epoch per ms, so one that starts later begins with a larger epoch.
  std::uint64_t least_epoch = 1;
  Duration grace = std::chrono::seconds(10);
  Duration timeout = std::chrono::seconds(5);  // the shell ends a connection that is silent so long
  Duration heartbeat = std::chrono::seconds(1);  // between statuses
  Duration missing_after = std::chrono::seconds(10);
  Duration wait = Duration::max();  // so long it waits for a quorum
  PayloadLimits payloads;

  // A site is silent when it was not heard for so many own heartbeats: a pause of this site makes
  // no other one silent.
  int silent_beats() const { return std::max(3, static_cast<int>(3 * timeout / (5 * heartbeat))); }
  Duration silence() const { return std::min<Duration>(timeout, silent_beats() * heartbeat); }
};

class SiteCore {
 public:
  // Events.
  // A connection has passed its handshake; a new one of the same site replaces an older one.
  struct PeerUp {
    SiteMember peer;
  };
  // It is closed, broken or silent for too long.
  struct PeerDown {
    int site = 0;
  };
  // Any message up to SiteAsk.
  struct Received {
    int from = 0;
    SiteMessage message;
  };
  // The site's own payload for merge held().next() is in memory. If that merge is decided already,
  // the answer is Forget at once: the contribution is late. A member contributes once for an id.
  // kind: equal in payloads that can be averaged.
  struct Contributed {
    Contribution payload;
    std::uint64_t kind = 0;
  };
  // The shell has stored a block that expects() wants.
  struct Arrived {
    int from = 0;
    Contribution payload;
    std::uint64_t offset = 0;
    std::uint32_t count = 0;
  };
  // The answer to Check.
  struct Checked {
    Contribution payload;
    bool right = false;
    std::uint64_t kind = 0;
  };
  // The answer to Apply: the outer state is now that after the merge.
  struct Applied {
    MergeId id;
    std::uint64_t hash = 0;
  };
  // FetchState ends with TookState or StateFailed, or with the PeerDown or PeerUp of its source:
  // then no answer comes. StateArrived: all bytes of the state are here, so TookState follows, also
  // if the connection ends. The state that came may be newer than `at_least`.
  struct StateArrived {
    int from = 0;
  };
  struct TookState {
    MergeId id;
    std::uint64_t hash = 0;
  };
  struct StateFailed {
    int from = 0;
  };
  // Bytes have come from the site, perhaps a part of a message only.
  struct Heard {
    int from = 0;
  };
  struct Clock {};
  using Event = std::variant<PeerUp, PeerDown, Received, Contributed, Arrived, Checked, Applied,
                             StateArrived, TookState, StateFailed, Heard, Clock>;

  // Actions, in this order to be performed.
  struct Send {
    int to = 0;
    SiteMessage message;
  };
  // Send these bytes of the payload as a SiteBlock: they are here.
  struct Serve {
    PayloadAsk block;
  };
  // Make room for payload.bytes: blocks of it will come.
  struct Receive {
    Contribution payload;
  };
  // All bytes of the payload are here. Do they have its digest? Answer with Checked.
  struct Check {
    Contribution payload;
  };
  // The bytes of the payload are no longer needed.
  struct Forget {
    Contribution payload;
  };
  // Apply this merge to the outer state, which is that of the merge before; all payloads are here
  // until Applied. The site's own contribution, if the merge is without it, is late: it was made
  // for this merge and will be in no other.
  struct Apply {
    Merge merge;
  };
  // The site's state is the founder's: it has the id of this founding from now on. Needs no answer.
  // A contribution made before is late.
  struct Adopt {
    Merge merge;
  };
  // The merges that this site needs are gone: take the whole outer state of `from`, at_least or
  // newer. One at a time; no Apply comes before the answer. A contribution made before is late.
  struct FetchState {
    int from = 0;
    MergeId at_least;
  };
  // Training waits for these sites; once per wait, after `missing_after`.
  struct Missing {
    std::vector<int> sites;
  };
  // No quorum was in reach for `wait`, because these sites are missing: an error. Once.
  struct GiveUp {
    std::vector<int> missing;
  };
  // Another site has another outer state after the same merge: an error that no retry repairs.
  struct Mismatch {
    int site = 0;
    MergeId id;
    std::uint64_t mine = 0, theirs = 0;
  };
  using Action = std::variant<Send, Serve, Receive, Check, Forget, Apply, Adopt, FetchState,
                              Missing, GiveUp, Mismatch>;

  explicit SiteCore(const SiteCoreConfig& config);

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  const MergeId& held() const { return held_; }
  std::uint64_t hash() const { return hash_; }
  // The newest decided merge that this site knows; null: none. decided() of it is {} then.
  const Merge* newest() const { return chain_.empty() ? nullptr : &chain_.back(); }
  MergeId decided() const { return chain_.empty() ? MergeId{} : chain_.back().id; }
  // Whether the shell should store this block, and report Arrived.
  bool expects(const Contribution& payload, std::uint64_t offset, std::uint64_t count) const {
    return payloads_.expects(payload, offset, count);
  }
  bool connected(int site) const { return peers_.contains(site); }
  // This life of the site is not silent, here or for a peer that is not silent itself.
  bool is_heard(const SiteMember& member) const;
  // This site proposes the next merge.
  bool is_proposer() const { return role_ != Role::none; }

 protected:  // The simulator plants bugs here (tests/sim/sites).
  enum class Role { none, preparing, ready, proposing };
  struct Peer {
    SiteMember member;
    std::optional<SiteStatus> status;
    MergeId told;     // the newest merge that was sent to it
    int unheard = 0;  // own heartbeats since its last bytes
  };
  struct Consent {
    std::uint64_t epoch = 0;
    SiteMember founder;
  };

  void on(const PeerUp& event);
  void on(const PeerDown& event);
  void on(const Received& event);
  void on(const Contributed& event);
  void on(const Arrived& event);
  void on(const Checked& event);
  void on(const Applied& event);
  void on(const StateArrived& event);
  void on(const TookState& event);
  void on(const StateFailed& event);
  void on(const Heard& event);
  void on(const Clock&) {}

  void take(Peer& from, const SiteStatus& status);
  void take(Peer& from, const SitePrepare& prepare);
  void take(Peer& from, const SitePromise& promise);
  void take(Peer& from, const SiteRefusal& refusal);
  void take(Peer& from, const SiteAccept& accept);
  void take(Peer& from, const SiteAccepted& accepted);
  void take(Peer& from, const SiteDecided& decided);
  void take(Peer& from, const SiteFound& found);
  void take(Peer& from, const SiteConsent& consent);
  void take(Peer& from, const SiteAsk& ask);
  // The shell's own.
  void take(Peer&, const SiteBlock&) {}
  void take(Peer&, const SiteStateAsk&) {}
  void take(Peer&, const SiteStateBlock&) {}
  void take(Peer&, const SiteDenial&) {}

  // What follows from any event.
  void settle();
  void count_silence();
  bool is_silent(const Peer& peer) const { return peer.unheard >= config_.silent_beats(); }
  void found();
  void abandon_founding();
  void propose();
  void prepare();
  void offer();
  void accept_pending();
  void want_payloads();
  void apply_next();
  bool adopt();
  void fetch_state();
  void forget_unneeded();
  void look_for_missing();
  void beat();
  void pull();

  void learn(const Merge& merge);
  void decide(const Merge& merge);
  void stand_down();
  void hear(TimePoint when, const SiteBallot& proposer, bool itself);
  void trim_chain();
  void bring_forward(int site, Peer& peer);
  void send_open(int site, const Peer& peer);
  void send_open_to_all();
  bool refuses(const Peer& from, const SiteBallot& ballot);
  void give_vote(const SiteVote& vote);
  void want(const Contribution& payload);
  void want_all(const Merge& merge);
  void compare_hashes(const Peer& peer);

  MergeId slot() const { return chain_.back().id.next(); }
  bool is_voter(const SiteMember& member) const;
  std::uint64_t given_up() const;
  bool votes() const;        // this endpoint, in the open slot
  bool may_propose() const;  // it also reaches a quorum
  bool may_found() const;
  bool may_consent(const Peer& from, const Merge& merge) const;
  TimePoint take_over_at() const;
  std::vector<SiteMember> alive() const;      // connected members, and this one, that may vote
  std::map<int, SiteSeen> reachable() const;  // by site, this one included: direct, or by a peer
  std::map<int, SiteSeen> heard() const;      // those of them that are not silent
  std::vector<Contribution> offered() const;
  std::vector<Contribution> alike(const std::vector<Contribution>& given) const;
  bool has_quorum(const std::vector<Contribution>& given) const;
  bool has_enough(const std::vector<Contribution>& given) const;
  bool all_have_given(const std::vector<Contribution>& given) const;
  std::optional<Merge> proposal();
  Merge founding() const;
  std::uint64_t next_epoch() const;
  bool is_lost() const;
  bool has_all(const Merge& merge) const;
  bool is_known_to_be_whole(const Contribution& payload) const;
  const Merge* after(const MergeId& id) const;  // in the chain
  std::vector<std::int32_t> order_of(const std::vector<SiteMember>& members) const;
  SiteStatus status() const;
  void send(int to, SiteMessage message) { act(Send{to, std::move(message)}); }
  void act(Action action) { actions_.push_back(std::move(action)); }

  const SiteCoreConfig config_;
  TimePoint now_{};
  MergeId held_;
  std::uint64_t hash_ = 0;
  std::map<int, Peer> peers_;
  PayloadSources payloads_;
  std::map<Contribution, std::uint64_t> kinds_;  // of those that are here
  std::vector<Merge> chain_;       // the newest decided merges, each the next of the one before
  std::optional<Merge> applying_;  // the shell does
  std::optional<FetchState> fetching_;
  bool state_arrived_ = false;     // of fetching_
  bool catches_up_ = false;        // since a FetchState
  std::set<int> failed_states_;    // sites that gave no state, since the last heartbeat
  std::vector<Consent> consents_;  // to foundings that may still come

  // The open slot: as an acceptor, and as the proposer.
  SiteBallot promised_;
  std::optional<SiteVote> accepted_;
  std::optional<SiteVote> to_accept_;  // waits for payloads
  Role role_ = Role::none;
  bool leads_ = false;         // it decided the newest merge, and proposes the next
  SiteBallot ballot_;          // of the own attempt
  std::uint64_t highest_ = 0;  // count of all ballots that it knows
  std::vector<SiteMember> promises_, votes_;
  std::optional<SiteVote> best_;  // the highest that one of `promises_` has accepted
  std::optional<Merge> proposed_;
  TimePoint attempt_at_{};        // when the own attempt began, or failed
  TimePoint enough_at_ = kNever;  // when a quorum had contributed

  // The proposer heard last: by anyone, and by this site itself.
  TimePoint heard_at_{}, heard_itself_at_{};
  SiteBallot heard_;

  // The own attempt to found.
  std::optional<Merge> founding_;
  std::set<int> consented_;
  TimePoint founding_at_{};
  std::uint64_t last_epoch_ = 0;  // of the own attempts

  bool started_ = false;
  TimePoint beat_at_{};
  std::optional<SiteStatus> last_status_;
  TimePoint lost_since_ = kNever;   // the newest state: no site can make it
  TimePoint stuck_since_ = kNever;  // no site has a payload that this one needs
  TimePoint alone_since_ = kNever;  // no quorum is in reach
  bool complained_ = false, gave_up_ = false;
  std::set<std::pair<int, MergeId>> mismatches_;
  std::vector<Action> actions_;
};

}  // namespace dlaunch
