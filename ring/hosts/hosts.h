// HostMap: which ranks share a host; all ranks have the same one. Pure.
#pragma once

#include <vector>

namespace dlaunch {

class HostMap {
 public:
  // host_of[r]: the lowest rank on rank r's host. With inconsistent values (a leader with another
  // leader) every rank is a host of its own.
  explicit HostMap(const std::vector<int>& host_of);

  int hosts() const { return static_cast<int>(hosts_.size()); }
  // The ranks of a host, ascending; hosts are in the order of their lowest ranks.
  const std::vector<int>& ranks_of(int host) const {
    return hosts_[static_cast<std::size_t>(host)];
  }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // The place of a rank among those of its host.
  int local_index(int rank) const;
  // Every host has as many ranks as the others.
  bool even() const;
  // The ranks with this local index, host by host. For even() maps.
  std::vector<int> column(int local_index) const;

 private:
  std::vector<std::vector<int>> hosts_;
  std::vector<int> host_of_;  // index into hosts_
};

// How many of a host's cores a group may use: the ranks `locals` share them, and other groups may
// work at the same time. At least one.
int cores_of_group(int cores, const std::vector<int>& locals, const std::vector<int>& members);

}  // namespace dlaunch
