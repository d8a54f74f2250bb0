// SiteCore: foundings, which begin an epoch where no chain can go on.
#include <algorithm>

#include "ring/sites/site_core.h"

namespace dlaunch {

void SiteCore::take(Peer& from, const SiteFound& found) {
  if (!may_consent(from, found.merge)) return;
  consents_.push_back({found.merge.id.epoch, from.member});
  if (role_ != Role::none) stand_down();
  send(from.member.site, SiteConsent{found.merge.id.epoch});
}

void SiteCore::take(Peer& from, const SiteConsent& consent) {
  if (founding_ && consent.epoch == founding_->id.epoch) consented_.insert(from.member.site);
}

// No site has the newest state, and none can make it: all who had a payload have restarted.
bool SiteCore::is_lost() const {
  std::vector<std::pair<MergeId, std::uint64_t>> states = {{held_, hash_}};
  for (const auto& [site, peer] : peers_) {
    if (peer.status) states.emplace_back(peer.status->held, peer.status->hash);
  }
  const MergeId highest = std::max_element(states.begin(), states.end())->first;
  if (applying_ || highest >= decided()) return false;
  for (const auto& [held, hash] : states) {
    for (const Merge& merge : chain_) {
      if (founds_for(merge, held, hash)) return false;
    }
  }
  const Merge* next = after(highest);
  if (next == nullptr) return true;
  const auto& all = next->contributions;
  return !std::all_of(all.begin(), all.end(),
                      [this](const Contribution& it) { return is_known_to_be_whole(it); });
}

bool SiteCore::may_found() const {
  if (applying_ || fetching_ || static_cast<int>(peers_.size()) + 1 < config_.sites) return false;
  if (const Merge* next = after(held_); next != nullptr && !founding_ && has_all(*next)) {
    return false;
  }
  for (const auto& [site, peer] : peers_) {
    if (!peer.status || peer.status->decided > decided() || peer.status->held > held_) return false;
    if (peer.status->held == held_ && site < config_.me.site) return false;
  }
  if (chain_.empty() || founding_ || !is_site_quorum(chain_.back().members, alive())) return true;
  return lost_since_ != kNever && now_ >= lost_since_ + config_.timeout;
}

bool SiteCore::may_consent(const Peer& from, const Merge& merge) const {
  if (!from.status || static_cast<int>(merge.members.size()) != config_.sites ||
      !is_among(merge.members, config_.me) || !is_among(merge.members, from.member) ||
      from.status->decided < decided() || from.status->held < held_ ||
      merge.id.epoch <= std::max({given_up(), decided().epoch, held_.epoch})) {
    return false;
  }
  if (chain_.empty()) return true;
  std::vector<SiteMember> voters;
  for (const SiteMember& member : merge.members) {
    const auto peer = peers_.find(member.site);
    const std::uint64_t given = member == config_.me              ? given_up()
                                : peer == peers_.end()            ? 0
                                : peer->second.status.has_value() ? peer->second.status->given_up
                                                                  : 0;
    if (given <= decided().epoch) voters.push_back(member);
  }
  return !is_site_quorum(chain_.back().members, voters) || is_lost();
}

std::uint64_t SiteCore::next_epoch() const {
  std::uint64_t last =
      std::max({config_.least_epoch - 1, last_epoch_, decided().epoch, held_.epoch, given_up()});
  for (const auto& [site, peer] : peers_) {
    const SiteStatus& it = *peer.status;
    last = std::max({last, it.decided.epoch, it.held.epoch, it.given_up});
  }
  return last + 1;
}

Merge SiteCore::founding() const {
  Merge merge{.id = {0, held_.number}, .members = {}, .contributions = {}, .order = {}};
  merge.founding = true;
  merge.hash = hash_;
  merge.members = {config_.me};
  for (const auto& [site, peer] : peers_) merge.members.push_back(peer.member);
  std::sort(merge.members.begin(), merge.members.end());
  return merge;
}

void SiteCore::found() {
  lost_since_ = !chain_.empty() && is_lost() ? std::min(lost_since_, now_) : kNever;
  const bool is_over = founding_ && (founding_->members != founding().members ||
                                     now_ >= founding_at_ + config_.timeout);
  if (is_over) abandon_founding();
  if (!may_found()) return abandon_founding();
  if (!founding_) {
    // So that epochs stay below the clock: see SiteCoreConfig::least_epoch.
    if (last_epoch_ > 0 && now_ < founding_at_ + 2 * config_.heartbeat) return;
    founding_ = founding();
    founding_->id.epoch = last_epoch_ = next_epoch();
    founding_->order = order_of(founding_->members);
    founding_at_ = now_;
    consented_ = {config_.me.site};
    consents_.push_back({last_epoch_, config_.me});
    if (role_ != Role::none) stand_down();
    for (const auto& [site, peer] : peers_) send(site, SiteFound{*founding_});
  }
  if (static_cast<int>(consented_.size()) < config_.sites) return;
  const Merge merge = *std::exchange(founding_, std::nullopt);
  decide(merge);
}

void SiteCore::abandon_founding() {
  if (!founding_) return;
  founding_.reset();
  std::erase_if(consents_, [this](const Consent& it) { return it.founder == config_.me; });
}

}  // namespace dlaunch
