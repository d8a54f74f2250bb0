// A SiteCore with a planted bug.
#pragma once

#include <algorithm>

#include "tests/sim/sites/world.h"

namespace dlaunch::sim {

class SabotagedCore : public SiteCore {
 public:
  SabotagedCore(const SiteCoreConfig& config, SiteBug bug) : SiteCore(config), bug_(bug) {}

  std::vector<Action> step(TimePoint now, Event event) {
    if (bug_ == SiteBug::none) return SiteCore::step(now, event);
    before(now, event);
    auto actions = SiteCore::step(now, event);
    if (bug_ == SiteBug::forgotten_promise && role_ == Role::none) promised_ = {};
    return actions;
  }

 private:
  void before(TimePoint now, Event& event) {
    auto* received = std::get_if<Received>(&event);
    if (bug_ == SiteBug::half_quorum && !chain_.empty()) forget_lowest(chain_.back().members);
    if (bug_ == SiteBug::no_consent && founding_) {
      for (int site = 0; site < config_.sites; ++site) consented_.insert(site);
    }
    if (bug_ == SiteBug::no_take_over) heard_at_ = now;
    if (bug_ == SiteBug::lost_source && fetching_) state_arrived_ = true;
    if (received == nullptr) return;
    if (auto* accept = std::get_if<SiteAccept>(&received->message);
        accept != nullptr && bug_ == SiteBug::early_accept) {
      for (const Contribution& it : accept->merge.contributions) payloads_.have(it);
    }
    if (auto* promise = std::get_if<SitePromise>(&received->message);
        promise != nullptr && bug_ == SiteBug::ignored_vote) {
      promise->accepted.reset();
    }
    if (auto* status = std::get_if<SiteStatus>(&received->message);
        status != nullptr && bug_ == SiteBug::one_source) {
      std::erase_if(status->whole,
                    [&](const Contribution& it) { return it.member.site != received->from; });
    }
  }

  void forget_lowest(std::vector<SiteMember>& members) {
    const auto here = [this](const SiteMember& it) {
      return it.site == config_.me.site || connected(it.site);
    };
    const auto count =
        static_cast<std::size_t>(std::count_if(members.begin(), members.end(), here));
    if (2 * count == members.size() && !here(members.front())) members.erase(members.begin());
  }

  const SiteBug bug_;
};

}  // namespace dlaunch::sim
