// SiteCore: the agreement on the open slot, as an acceptor and as the proposer.
#include <algorithm>
#include <tuple>

#include "ring/sites/site_core.h"
#include "ring/sites/site_order.h"

namespace dlaunch {
namespace {

std::vector<SiteMember> givers_of(const std::vector<Contribution>& given) {
  std::vector<SiteMember> all;
  all.reserve(given.size());
  for (const Contribution& it : given) all.push_back(it.member);
  return all;
}

}  // namespace

void SiteCore::take(Peer& from, const SitePrepare& prepare) {
  if (chain_.empty() || prepare.slot != slot()) return;
  hear(now_, prepare.ballot, true);
  if (!votes() || refuses(from, prepare.ballot)) return;
  if (prepare.ballot > promised_) promised_ = prepare.ballot;
  send(from.member.site, SitePromise{prepare.slot, prepare.ballot, accepted_});
}

void SiteCore::take(Peer& from, const SiteAccept& accept) {
  if (chain_.empty() || accept.merge.id != slot() || !makes_sense(accept.merge, config_.sites)) {
    return;
  }
  hear(now_, accept.ballot, true);
  if (!votes() || refuses(from, accept.ballot)) return;
  promised_ = accept.ballot;
  to_accept_ = SiteVote{accept.ballot, accept.merge};
  accept_pending();
}

// Answers for the ballot, if a higher one has the promise; a lower own attempt ends.
bool SiteCore::refuses(const Peer& from, const SiteBallot& ballot) {
  highest_ = std::max(highest_, ballot.count);
  if (ballot < promised_) {
    send(from.member.site, SiteRefusal{slot(), ballot, promised_});
    return true;
  }
  if (role_ != Role::none && ballot > ballot_) stand_down();
  return false;
}

void SiteCore::accept_pending() {
  if (!to_accept_ || !votes() || !has_all(to_accept_->merge)) return;
  const SiteVote vote = *std::exchange(to_accept_, std::nullopt);
  if (vote.ballot < promised_) return;
  give_vote(vote);
  const auto proposer = peers_.find(vote.ballot.site);
  if (proposer == peers_.end()) return;
  send(proposer->first, SiteAccepted{slot(), vote.ballot});
}

void SiteCore::give_vote(const SiteVote& vote) {
  promised_ = vote.ballot;
  accepted_ = vote;
}

void SiteCore::take(Peer& from, const SitePromise& promise) {
  if (chain_.empty() || role_ != Role::preparing || promise.slot != slot() ||
      promise.ballot != ballot_ || !is_voter(from.member) || is_among(promises_, from.member)) {
    return;
  }
  promises_.push_back(from.member);
  const auto& accepted = promise.accepted;
  if (accepted && (!best_ || best_->ballot < accepted->ballot)) best_ = accepted;
  if (is_site_quorum(chain_.back().members, promises_)) role_ = Role::ready;
}

void SiteCore::take(Peer&, const SiteRefusal& refusal) {
  if (chain_.empty() || refusal.slot != slot()) return;
  highest_ = std::max(highest_, refusal.promised.count);
  if (role_ != Role::none && refusal.ballot == ballot_) stand_down();
}

void SiteCore::take(Peer& from, const SiteAccepted& accepted) {
  if (chain_.empty() || role_ != Role::proposing || accepted.slot != slot() ||
      accepted.ballot != ballot_ || !is_voter(from.member) || is_among(votes_, from.member)) {
    return;
  }
  votes_.push_back(from.member);
  if (is_site_quorum(chain_.back().members, votes_)) decide(Merge(*proposed_));
}

bool SiteCore::is_voter(const SiteMember& member) const {
  return !chain_.empty() && is_among(chain_.back().members, member);
}

std::uint64_t SiteCore::given_up() const {
  std::uint64_t epoch = 0;
  for (const Consent& it : consents_) epoch = std::max(epoch, it.epoch);
  return epoch;
}

bool SiteCore::votes() const { return is_voter(config_.me) && given_up() == 0; }

std::vector<SiteMember> SiteCore::alive() const {
  std::vector<SiteMember> all;
  if (given_up() == 0) all.push_back(config_.me);
  for (const auto& [site, peer] : peers_) {
    if (peer.status && peer.status->given_up <= decided().epoch) all.push_back(peer.member);
  }
  return all;
}

bool SiteCore::may_propose() const {
  return votes() && is_site_quorum(chain_.back().members, alive());
}

// When the proposer is silent, or proposes nothing though this site holds enough for it. A site
// that reaches lower members leaves them time to begin.
TimePoint SiteCore::take_over_at() const {
  const auto all = heard();
  const auto& members = chain_.back().members;
  const auto lower = std::count_if(members.begin(), members.end(), [&](const SiteMember& member) {
    const auto found = all.find(member.site);
    return member.site < config_.me.site && found != all.end() && found->second.member == member;
  });
  TimePoint idle = heard_at_;
  if (enough_at_ != kNever) {
    idle = std::min(idle, enough_at_ + config_.grace + 4 * config_.timeout);
  }
  return std::max(idle, attempt_at_) + config_.silence() + lower * config_.silence() / 2;
}

void SiteCore::hear(TimePoint when, const SiteBallot& proposer, bool itself) {
  heard_at_ = std::max(heard_at_, when);
  if (!itself || (heard_.count > 0 && when < heard_itself_at_)) return;
  heard_itself_at_ = when;
  heard_ = proposer;
}

void SiteCore::stand_down() {
  role_ = Role::none;
  leads_ = false;
  attempt_at_ = now_;
  promises_.clear();
  votes_.clear();
  best_.reset();
  proposed_.reset();
}

void SiteCore::propose() {
  if (chain_.empty()) return;
  if (!may_propose()) {
    if (role_ != Role::none || leads_) stand_down();
    return;
  }
  enough_at_ = has_enough(offered()) ? std::min(enough_at_, now_) : kNever;
  if (role_ == Role::none && (leads_ || now_ >= take_over_at())) prepare();
  // A payload of the value that must be proposed is gone: other promises may leave the choice free.
  const bool waits = role_ == Role::ready && best_ && !has_all(best_->merge);
  if (waits && now_ >= attempt_at_ + config_.timeout) prepare();
  if (role_ == Role::ready) offer();
}

void SiteCore::prepare() {
  const bool led = leads_;
  stand_down();
  leads_ = led;
  ballot_ = {highest_ = std::max(highest_, promised_.count) + 1, config_.me.site};
  promised_ = ballot_;
  promises_ = {config_.me};
  best_ = accepted_;
  role_ = Role::preparing;
  if (is_site_quorum(chain_.back().members, promises_)) role_ = Role::ready;
  send_open_to_all();
}

void SiteCore::offer() {
  const auto merge = best_ ? std::optional(best_->merge) : proposal();
  if (!merge || !has_all(*merge)) return;
  role_ = Role::proposing;
  proposed_ = merge;
  give_vote({ballot_, *merge});
  votes_ = {config_.me};
  if (is_site_quorum(chain_.back().members, votes_)) return decide(*merge);
  send_open_to_all();
}

void SiteCore::send_open_to_all() {
  for (const auto& [site, peer] : peers_) send_open(site, peer);
}

// The own Prepare or Accept, to a voter that has not answered it.
void SiteCore::send_open(int site, const Peer& peer) {
  if (role_ == Role::none || !is_voter(peer.member)) return;
  if (role_ == Role::proposing) {
    if (!is_among(votes_, peer.member)) send(site, SiteAccept{ballot_, *proposed_});
  } else if (!is_among(promises_, peer.member)) {
    send(site, SitePrepare{slot(), ballot_});
  }
}

// For the open slot, all bytes are here: of each site its newest life.
std::vector<Contribution> SiteCore::offered() const {
  std::map<int, Contribution> by_site;
  for (const Contribution& it : payloads_.whole()) {
    if (it.id == slot()) by_site[it.member.site] = it;  // in the order of incarnations
  }
  std::vector<Contribution> all;
  all.reserve(by_site.size());
  for (const auto& [site, it] : by_site) all.push_back(it);
  return all;
}

std::map<int, SiteSeen> SiteCore::reachable() const {
  std::map<int, SiteSeen> all;
  for (const auto& [site, peer] : peers_) {
    if (!peer.status) continue;
    for (const SiteSeen& seen : peer.status->seen) {
      SiteSeen& it = all[seen.member.site];
      if (std::tie(it.member, it.held) < std::tie(seen.member, seen.held)) it = seen;
    }
  }
  for (const auto& [site, peer] : peers_) {
    if (peer.status) all[site] = {peer.member, peer.status->held};
  }
  all[config_.me.site] = {config_.me, held_};
  return all;
}

std::map<int, SiteSeen> SiteCore::heard() const {
  auto all = reachable();
  std::erase_if(all, [this](const auto& entry) { return !is_heard(entry.second.member); });
  return all;
}

bool SiteCore::has_quorum(const std::vector<Contribution>& given) const {
  return is_site_quorum(chain_.back().members, givers_of(given));
}

// Those of one kind: that of a quorum, else that of most.
std::vector<Contribution> SiteCore::alike(const std::vector<Contribution>& given) const {
  std::map<std::uint64_t, std::vector<Contribution>> by_kind;
  for (const Contribution& it : given) {
    const auto kind = kinds_.find(it);
    by_kind[kind == kinds_.end() ? 0 : kind->second].push_back(it);
  }
  const auto worth = [this](const std::vector<Contribution>& all) {
    return std::tuple(has_quorum(all), all.size(), -all.front().member.site);
  };
  std::vector<Contribution> best;
  for (auto& [kind, all] : by_kind) {
    if (best.empty() || worth(best) < worth(all)) best = std::move(all);
  }
  return best;
}

// Where all have given and no quorum agrees, most decide: the others learn that they are wrong.
bool SiteCore::has_enough(const std::vector<Contribution>& given) const {
  return has_quorum(alike(given)) || (has_quorum(given) && all_have_given(given));
}

// The proposer waits for the newest merge's members, and for the sites that hold this merge or can
// still come to it merge by merge: otherwise a few quick sites could leave the others behind
// forever. It does not wait for silent ones.
bool SiteCore::all_have_given(const std::vector<Contribution>& given) const {
  for (const auto& [site, seen] : heard()) {
    const SiteMember& member = seen.member;
    const bool comes =
        seen.held.epoch == decided().epoch && seen.held.number + kKeptMerges >= decided().number;
    if (!comes && !is_voter(member)) continue;
    if (std::none_of(given.begin(), given.end(),
                     [&](const Contribution& it) { return it.member == member; })) {
      return false;
    }
  }
  return true;
}

std::optional<Merge> SiteCore::proposal() {
  if (enough_at_ == kNever) return std::nullopt;
  const std::vector<Contribution> given = offered();
  Merge merge{.id = slot(), .members = {}, .contributions = alike(given), .order = {}};
  const bool is_full = all_have_given(given) && has_quorum(merge.contributions);
  if (!is_full && now_ < enough_at_ + config_.grace) return std::nullopt;
  const std::vector<SiteMember> givers = givers_of(merge.contributions);
  for (const auto& [site, seen] : heard()) {
    const auto peer = peers_.find(site);
    const bool voteless = peer != peers_.end() && peer->second.status->given_up > decided().epoch;
    const bool holds = seen.held == decided() && (site == config_.me.site || peer != peers_.end());
    if (!voteless && (holds || is_among(givers, seen.member))) merge.members.push_back(seen.member);
  }
  if (merge.members.empty()) return std::nullopt;
  merge.order = order_of(merge.members);
  return merge;
}

std::vector<std::int32_t> SiteCore::order_of(const std::vector<SiteMember>& members) const {
  std::map<int, std::size_t> place;
  for (const SiteMember& member : members) place.emplace(member.site, place.size());
  std::vector<std::vector<std::uint64_t>> rates(place.size(),
                                                std::vector<std::uint64_t>(place.size()));
  const auto note = [&](int from, int to, std::uint64_t rate) {
    if (place.contains(from) && place.contains(to)) rates[place[from]][place[to]] = rate;
  };
  for (const auto& [from, rate] : payloads_.rates()) note(from, config_.me.site, rate);
  for (const auto& [site, peer] : peers_) {
    if (!peer.status) continue;
    for (const SiteRate& it : peer.status->rates) note(it.from, site, it.bytes_per_s);
  }
  std::vector<std::int32_t> order;
  for (const std::int32_t at : best_site_order(rates)) {
    order.push_back(members[static_cast<std::size_t>(at)].site);
  }
  return order;
}

}  // namespace dlaunch
