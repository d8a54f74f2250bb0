#include "ring/sites/site_core.h"

#include <algorithm>
#include <tuple>

namespace dlaunch {
namespace {

// Most events by far, and nothing else follows from them.
bool only_moves_bytes(const SiteCore::Event& event) {
  const auto* received = std::get_if<SiteCore::Received>(&event);
  return std::holds_alternative<SiteCore::Arrived>(event) ||
         std::holds_alternative<SiteCore::Heard>(event) ||
         (received != nullptr && std::holds_alternative<SiteAsk>(received->message));
}

// Without what a heartbeat may bring later.
auto urgent(const SiteStatus& status, const SiteMember& me) {
  std::vector<Contribution> own;
  for (const Contribution& it : status.whole) {
    if (it.member == me) own.push_back(it);
  }
  return std::tuple(status.decided, status.held, status.hash, status.given_up, status.founding,
                    std::move(own), status.proposer.site == me.site, status.slot);
}

}  // namespace

SiteCore::SiteCore(const SiteCoreConfig& config)
    : config_(config),
      held_(config.held),
      hash_(config.hash),
      payloads_(config.me.site, config.payloads) {}

std::vector<SiteCore::Action> SiteCore::step(TimePoint now, const Event& event) {
  now_ = now;
  if (!started_) beat_at_ = heard_at_ = now;
  started_ = true;
  std::visit([this](const auto& it) { on(it); }, event);
  if (only_moves_bytes(event)) {
    pull();
  } else {
    settle();
  }
  return std::exchange(actions_, {});
}

std::optional<TimePoint> SiteCore::deadline() const {
  if (!started_) return std::nullopt;
  TimePoint first = std::min(beat_at_, payloads_.deadline());
  // What else waits for a time comes with a heartbeat.
  if (role_ == Role::ready) {
    const TimePoint due = deadline_after(enough_at_, config_.grace);
    if (enough_at_ != kNever && due > now_) first = std::min(first, due);
  }
  return first;
}

void SiteCore::settle() {
  MergeId before;
  if (held_ >= decided()) catches_up_ = false;
  trim_chain();
  count_silence();
  accept_pending();
  do {
    before = decided();
    found();
    propose();
  } while (decided() != before);
  forget_unneeded();
  want_payloads();
  payloads_.forget_asks(decided());  // but not those for what it now wants
  apply_next();
  fetch_state();
  look_for_missing();
  beat();
  pull();
}

// ---- Events.

void SiteCore::on(const PeerUp& event) {
  const int site = event.peer.site;
  if (site < 0 || site >= config_.sites || site == config_.me.site) return;
  if (peers_.contains(site)) on(PeerDown{site});
  peers_[site].member = event.peer;
  payloads_.peer_up(site);
  send(site, status());
}

void SiteCore::on(const PeerDown& event) {
  peers_.erase(event.site);
  payloads_.peer_down(event.site);
  if (fetching_ && fetching_->from == event.site && !state_arrived_) on(StateFailed{event.site});
}

void SiteCore::on(const Received& event) {
  const auto from = peers_.find(event.from);
  if (from == peers_.end()) return;
  on(Heard{event.from});
  std::visit([&](const auto& message) { take(from->second, message); }, event.message);
}

void SiteCore::on(const Heard& event) {
  const auto from = peers_.find(event.from);
  if (from == peers_.end()) return;
  from->second.unheard = 0;
  payloads_.set_silent(event.from, false);
  // Its next status may wait behind a payload on a slow line.
  const auto& status = from->second.status;
  const bool proposes = status && !chain_.empty() && status->slot == slot() &&
                        status->proposer.count > 0 && status->proposer.site == event.from;
  if (proposes) hear(now_, status->proposer, true);
}

void SiteCore::on(const Contributed& event) {
  const Contribution& payload = event.payload;
  const auto is_own = [&](const Contribution& it) {
    return it.member == config_.me && it.id == payload.id;
  };
  const auto known = payloads_.known();
  if (held_ < decided() || payload.id != held_.next() || payload.member != config_.me ||
      std::any_of(known.begin(), known.end(), is_own)) {
    return act(Forget{payload});
  }
  kinds_[payload] = event.kind;
  payloads_.have(payload);
}

void SiteCore::on(const Arrived& event) {
  on(Heard{event.from});
  if (!payloads_.expects(event.payload, event.offset, event.count)) return;
  if (payloads_.arrived(now_, event.from, event.payload, event.count)) act(Check{event.payload});
}

void SiteCore::on(const Checked& event) {
  if (!payloads_.knows(event.payload)) return;
  if (!event.right) return payloads_.corrupt(now_, event.payload);
  kinds_[event.payload] = event.kind;
  payloads_.have(event.payload);
}

void SiteCore::on(const Applied& event) {
  applying_.reset();
  held_ = event.id;
  hash_ = event.hash;
  for (const auto& [site, peer] : peers_) compare_hashes(peer);
}

void SiteCore::on(const StateArrived& event) {
  state_arrived_ = fetching_ && fetching_->from == event.from;
}

void SiteCore::on(const TookState& event) {
  if (!fetching_) return;
  const int from = std::exchange(fetching_, std::nullopt)->from;
  if (event.id <= held_) {
    failed_states_.insert(from);
    return;
  }
  held_ = event.id;
  hash_ = event.hash;
  for (const auto& [site, peer] : peers_) compare_hashes(peer);
}

void SiteCore::on(const StateFailed& event) {
  if (fetching_ && fetching_->from == event.from) fetching_.reset();
  failed_states_.insert(event.from);
}

// ---- Messages.

void SiteCore::take(Peer& from, const SiteStatus& status) {
  const bool is_new = !from.status || from.status->decided != status.decided;
  from.status = status;
  const int site = from.member.site;
  // The founder has given these attempts up.
  std::erase_if(consents_, [&](const Consent& it) {
    return it.founder == from.member && it.epoch != status.founding &&
           it.epoch > status.decided.epoch;
  });
  std::set<int> sees;
  for (const SiteSeen& it : status.seen) sees.insert(it.member.site);
  payloads_.peer_has(site, status.whole, std::move(sees));
  compare_hashes(from);
  bring_forward(site, from);
  if (!chain_.empty() && status.slot == slot() && status.proposer.count > 0) {
    hear(now_ - status.heard, status.proposer, status.proposer.site == site);
  }
  if (is_new) send_open(site, from);
}

void SiteCore::take(Peer&, const SiteDecided& decided) {
  if (makes_sense(decided.merge, config_.sites)) learn(decided.merge);
}

void SiteCore::take(Peer& from, const SiteAsk& ask) {
  payloads_.asked({from.member.site, ask.payload, ask.offset, ask.count});
}

// ---- The chain.

void SiteCore::decide(const Merge& merge) {
  learn(merge);
  leads_ = true;
  for (auto& [site, peer] : peers_) {
    if (peer.told >= merge.id) continue;
    peer.told = merge.id;
    send(site, SiteDecided{merge});
  }
}

void SiteCore::learn(const Merge& merge) {
  if (!chain_.empty() && merge.id <= decided()) return;
  if (chain_.empty() || merge.founding || merge.id != slot()) chain_.clear();
  chain_.push_back(merge);
  trim_chain();
  promised_ = {};
  accepted_.reset();
  to_accept_.reset();
  stand_down();
  highest_ = 0;
  attempt_at_ = {};
  enough_at_ = kNever;
  heard_at_ = now_;
  heard_ = {};
  std::erase_if(consents_, [&](const Consent& it) { return it.epoch <= merge.id.epoch; });
  payloads_.set_order(merge.order);
}

// While a state comes, further merges are decided: what follows that state waits here for it.
void SiteCore::trim_chain() {
  const MergeId needed = fetching_ ? std::max(held_, fetching_->at_least) : held_;
  const auto is_needed = [&](const Merge& merge) {
    return catches_up_ && needed < merge.id && chain_.size() <= kMostKeptMerges;
  };
  while (chain_.size() > kKeptMerges && !is_needed(chain_.front())) chain_.erase(chain_.begin());
}

// The peer knows only older merges: sends all newer ones, once on each connection.
void SiteCore::bring_forward(int site, Peer& peer) {
  if (!peer.status) return;
  for (const Merge& merge : chain_) {
    if (merge.id <= peer.status->decided || merge.id <= peer.told) continue;
    peer.told = merge.id;
    send(site, SiteDecided{merge});
  }
}

void SiteCore::apply_next() {
  while (!applying_ && !fetching_ && !founding_ && !chain_.empty()) {
    if (adopt()) continue;
    const Merge* next = after(held_);
    if (next == nullptr || !has_all(*next)) return;
    applying_ = *next;
    act(Apply{*next});
  }
}

bool SiteCore::adopt() {
  for (const Merge& merge : chain_) {
    if (!founds_for(merge, held_, hash_)) continue;
    held_ = merge.id;
    act(Adopt{merge});
    return true;
  }
  return false;
}

// Where the chain begins behind the own state, or no site has a payload that it needs.
void SiteCore::fetch_state() {
  if (applying_ || fetching_ || founding_ || held_ >= decided()) return;
  if (const Merge* next = after(held_)) {
    const auto& all = next->contributions;
    if (std::all_of(all.begin(), all.end(),
                    [this](const Contribution& it) { return is_known_to_be_whole(it); })) {
      stuck_since_ = kNever;
      return;
    }
    stuck_since_ = std::min(stuck_since_, now_);
    if (now_ < stuck_since_ + config_.timeout) return;
  }
  const Peer* best = nullptr;
  for (const auto& [site, peer] : peers_) {
    if (!peer.status || peer.status->held <= held_ || failed_states_.contains(site)) continue;
    if (peer.status->held.epoch != decided().epoch) continue;
    if (best == nullptr || best->status->held < peer.status->held) best = &peer;
  }
  if (best == nullptr) return;
  stuck_since_ = kNever;
  fetching_ = FetchState{best->member.site, best->status->held};
  state_arrived_ = false;
  catches_up_ = true;
  act(FetchState(*fetching_));
}

const Merge* SiteCore::after(const MergeId& id) const {
  for (const Merge& merge : chain_) {
    if (!merge.founding && merge.id == id.next()) return &merge;
  }
  return nullptr;
}

bool SiteCore::has_all(const Merge& merge) const {
  const auto& all = merge.contributions;
  return std::all_of(all.begin(), all.end(),
                     [this](const Contribution& it) { return payloads_.has(it); });
}

bool SiteCore::is_known_to_be_whole(const Contribution& payload) const {
  return payloads_.has(payload) || payloads_.has_holder(payload);
}

// ---- Payloads.

void SiteCore::want_payloads() {
  if (chain_.empty()) return;
  for (const auto& [site, peer] : peers_) {
    if (!peer.status) continue;
    for (const Contribution& it : peer.status->whole) {
      if (it.id == slot()) want(it);
    }
  }
  for (const Merge& merge : chain_) {
    if (held_ < merge.id) want_all(merge);
  }
  if (to_accept_) want_all(to_accept_->merge);
  if (best_) want_all(best_->merge);
}

void SiteCore::want_all(const Merge& merge) {
  for (const Contribution& it : merge.contributions) want(it);
}

void SiteCore::want(const Contribution& payload) {
  if (payloads_.knows(payload) || payload.member == config_.me) return;
  payloads_.want(now_, payload);
  act(Receive{payload});
}

void SiteCore::forget_unneeded() {
  const auto names = [](const Merge& merge, const Contribution& payload) {
    const auto& all = merge.contributions;
    return std::find(all.begin(), all.end(), payload) != all.end();
  };
  for (const Contribution& it : payloads_.known()) {
    const bool kept = std::any_of(chain_.begin(), chain_.end(),
                                  [&](const Merge& merge) { return names(merge, it); });
    // An own one may be for a later slot: a state came before the news of its merge.
    if (kept || decided() < it.id || (applying_ && names(*applying_, it))) continue;
    payloads_.drop(it);
    kinds_.erase(it);
    act(Forget{it});
  }
}

void SiteCore::pull() {
  for (const PayloadAsk& ask : payloads_.take_asks(now_)) {
    send(ask.site, SiteAsk{ask.payload, ask.offset, ask.count});
  }
  for (const PayloadAsk& ask : payloads_.take_answers()) act(Serve{ask});
}

// ---- What the others and the user hear.

// Before the heartbeat that is due.
void SiteCore::count_silence() {
  if (now_ < beat_at_) return;
  for (auto& [site, peer] : peers_) {
    ++peer.unheard;
    payloads_.set_silent(site, is_silent(peer));
  }
}

bool SiteCore::is_heard(const SiteMember& member) const {
  const auto has = [&](const SiteSeen& seen) { return seen.member == member; };
  const auto hears = [&](const auto& entry) {
    const Peer& peer = entry.second;
    if (is_silent(peer)) return false;
    return peer.member == member || (peer.status && std::ranges::any_of(peer.status->seen, has));
  };
  return member == config_.me || std::ranges::any_of(peers_, hears);
}

void SiteCore::compare_hashes(const Peer& peer) {
  if (!peer.status || held_.epoch == 0 || peer.status->held != held_) return;
  if (peer.status->hash == hash_ || !mismatches_.emplace(peer.member.site, held_).second) return;
  act(Mismatch{peer.member.site, held_, hash_, peer.status->hash});
}

void SiteCore::look_for_missing() {
  std::vector<SiteMember> there;
  for (const auto& [site, seen] : reachable()) there.push_back(seen.member);
  if (!chain_.empty() && is_site_quorum(chain_.back().members, there)) {
    alone_since_ = kNever;
    complained_ = false;
    return;
  }
  alone_since_ = std::min(alone_since_, now_);
  const bool complains = !complained_ && now_ >= alone_since_ + config_.missing_after;
  const bool gives_up = !gave_up_ && now_ >= deadline_after(alone_since_, config_.wait);
  if (!complains && !gives_up) return;
  std::vector<int> missing;
  for (int site = 0; site < config_.sites; ++site) {
    if (site != config_.me.site && !peers_.contains(site)) missing.push_back(site);
  }
  if (missing.empty()) return;
  if (complains) act(Missing{missing});
  if (gives_up) act(GiveUp{missing});
  complained_ |= complains;
  gave_up_ |= gives_up;
}

SiteStatus SiteCore::status() const {
  SiteStatus it;
  it.decided = decided();
  it.held = held_;
  it.hash = hash_;
  it.given_up = given_up();
  if (founding_) it.founding = founding_->id.epoch;
  it.whole = payloads_.whole();
  for (const auto& [site, peer] : peers_) {
    if (is_silent(peer)) continue;
    it.seen.push_back({peer.member, peer.status ? peer.status->held : MergeId{}});
  }
  for (const auto& [from, rate] : payloads_.rates()) it.rates.push_back({from, rate});
  if (chain_.empty()) return it;
  it.slot = slot();
  it.proposer = role_ == Role::none ? heard_ : ballot_;
  if (role_ == Role::none && heard_.count > 0) it.heard = now_ - heard_itself_at_;
  return it;
}

void SiteCore::beat() {
  SiteStatus now = status();
  const bool due = now_ >= beat_at_;
  if (!due && last_status_ && urgent(*last_status_, config_.me) == urgent(now, config_.me)) return;
  for (auto& [site, peer] : peers_) {
    send(site, now);
    if (!due) continue;
    bring_forward(site, peer);
    send_open(site, peer);
  }
  if (due) {
    failed_states_.clear();
    beat_at_ = now_ + config_.heartbeat;
  }
  last_status_ = std::move(now);
}

}  // namespace dlaunch
