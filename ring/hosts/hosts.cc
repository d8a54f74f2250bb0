#include "ring/hosts/hosts.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace dlaunch {

HostMap::HostMap(const std::vector<int>& host_of) {
  const auto leads_itself = [&](int leader) {
    return leader >= 0 && static_cast<std::size_t>(leader) < host_of.size() &&
           host_of[static_cast<std::size_t>(leader)] == leader;
  };
  const bool sound = std::all_of(host_of.begin(), host_of.end(), leads_itself);
  std::map<int, std::size_t> index;  // by leader
  for (std::size_t r = 0; r < host_of.size(); ++r) {
    const int leader = sound ? host_of[r] : static_cast<int>(r);
    const auto [known, fresh] = index.emplace(leader, hosts_.size());
    if (fresh) hosts_.emplace_back();
    hosts_[known->second].push_back(static_cast<int>(r));
    host_of_.push_back(static_cast<int>(known->second));
  }
}

int HostMap::local_index(int rank) const {
  const auto& ranks = ranks_of(host_of(rank));
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

bool HostMap::even() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [&](const auto& ranks) { return ranks.size() == hosts_[0].size(); });
}

std::vector<int> HostMap::column(int local_index) const {
  std::vector<int> members;
  for (const auto& ranks : hosts_) members.push_back(ranks[static_cast<std::size_t>(local_index)]);
  return members;
}

int cores_of_group(int cores, const std::vector<int>& locals, const std::vector<int>& members) {
  const auto here = std::count_if(members.begin(), members.end(), [&](int rank) {
    return std::find(locals.begin(), locals.end(), rank) != locals.end();
  });
  return std::max(1, static_cast<int>(cores * here / std::max<long>(1, std::ssize(locals))));
}

}  // namespace dlaunch
