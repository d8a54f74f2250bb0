// RankGroups: which ranks share a host, or a rack; all ranks have the same one. Pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace dlaunch {

class RankGroups {
 public:
  // first_of[r]: the lowest rank of rank r's group. With inconsistent values (a first one with
  // another first one) every rank is a group of its own.
  explicit RankGroups(const std::vector<int>& first_of);

  int groups() const { return static_cast<int>(groups_.size()); }
  // The ranks of a group, ascending; groups are in the order of their lowest ranks.
  const std::vector<int>& ranks_of(int group) const {
    return groups_[static_cast<std::size_t>(group)];
  }
  int group_of(int rank) const { return group_of_[static_cast<std::size_t>(rank)]; }
  // The place of a rank among those of its group.
  int place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  // Every group has as many ranks as the others.
  bool even() const;
  // The ranks at this place, group by group. For even() groups.
  std::vector<int> column(int place) const;
  // The same groups with these ranks only, which are numbered by their places among them.
  RankGroups among(const std::vector<int>& members) const;

 private:
  std::vector<std::vector<int>> groups_;
  std::vector<int> group_of_, places_;  // by rank
};

// The ranks of each rack, by the ranks' racks: names of switches from the top, with dots between
// them ("s0.s1"), or "" for a rank that does not know its rack and so has one of its own. Where no
// two of the hosts share a rack, the switches above the racks take their place. Null: there is only
// one group, or each host has its own. host_of: the lowest rank on each rank's host.
std::shared_ptr<const RankGroups> rack_groups(const std::vector<std::string>& racks,
                                              const std::vector<int>& host_of);

// How many of a host's cores a group may use: the ranks `locals` share them, and other groups may
// work at the same time. At least one.
int cores_of_group(int cores, const std::vector<int>& locals, const std::vector<int>& members);

}  // namespace dlaunch
