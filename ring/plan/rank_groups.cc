#include "ring/plan/rank_groups.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace dlaunch {
namespace {

// Takes the lowest switch off a rack's name.
void climb(std::string& rack) {
  const std::size_t dot = rack.rfind('.');
  rack.resize(dot == std::string::npos ? 0 : dot);
}

// The lowest rank with each rank's rack. Ranks without a rack are grouped by their hosts.
std::vector<int> first_in_rack(const std::vector<std::string>& racks,
                               const std::vector<int>& host_of) {
  std::map<std::string, int> first;
  std::vector<int> found;
  for (std::size_t r = 0; r < racks.size(); ++r) {
    const int rank = static_cast<int>(r);
    found.push_back(racks[r].empty() ? host_of[r]
                                     : first.try_emplace(racks[r], rank).first->second);
  }
  return found;
}

}  // namespace

RankGroups::RankGroups(const std::vector<int>& first_of) {
  const auto leads_itself = [&](int first) {
    return first >= 0 && static_cast<std::size_t>(first) < first_of.size() &&
           first_of[static_cast<std::size_t>(first)] == first;
  };
  const bool sound = std::all_of(first_of.begin(), first_of.end(), leads_itself);
  std::map<int, std::size_t> index;  // by first rank
  for (std::size_t r = 0; r < first_of.size(); ++r) {
    const int first = sound ? first_of[r] : static_cast<int>(r);
    const auto [known, fresh] = index.emplace(first, groups_.size());
    if (fresh) groups_.emplace_back();
    auto& group = groups_[known->second];
    places_.push_back(static_cast<int>(group.size()));
    group.push_back(static_cast<int>(r));
    group_of_.push_back(static_cast<int>(known->second));
  }
}

bool RankGroups::even() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [&](const auto& ranks) { return ranks.size() == groups_[0].size(); });
}

std::vector<int> RankGroups::column(int place) const {
  std::vector<int> members;
  for (const auto& ranks : groups_) members.push_back(ranks[static_cast<std::size_t>(place)]);
  return members;
}

RankGroups RankGroups::among(const std::vector<int>& members) const {
  std::map<int, int> first;  // by group
  std::vector<int> first_of;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto known = first.try_emplace(group_of(members[i]), static_cast<int>(i)).first;
    first_of.push_back(known->second);
  }
  return RankGroups(first_of);
}

std::shared_ptr<const RankGroups> rack_groups(const std::vector<std::string>& racks,
                                              const std::vector<int>& host_of) {
  const int hosts = RankGroups(host_of).groups();
  std::vector<std::string> names = racks;
  const auto named = [](const std::string& name) { return !name.empty(); };
  for (; std::ranges::any_of(names, named); std::ranges::for_each(names, climb)) {
    const RankGroups groups(first_in_rack(names, host_of));
    if (groups.groups() == 1) return nullptr;
    if (groups.groups() < hosts) return std::make_shared<const RankGroups>(groups);
  }
  return nullptr;
}

int cores_of_group(int cores, const std::vector<int>& locals, const std::vector<int>& members) {
  const auto here = std::count_if(members.begin(), members.end(), [&](int rank) {
    return std::find(locals.begin(), locals.end(), rank) != locals.end();
  });
  return std::max(1, static_cast<int>(cores * here / std::max<long>(1, std::ssize(locals))));
}

}  // namespace dlaunch
