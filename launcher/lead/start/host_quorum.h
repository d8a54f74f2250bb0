// HostQuorum: whether a job can begin without the hosts that failed, where its leader starts the
// others. It needs all hosts, or as many as --nnodes says, and always the leader's own. Pure.
#pragma once

#include <cstddef>
#include <set>

#include "launcher/plan/plan.h"

namespace dlaunch {

class HostQuorum {
 public:
  explicit HostQuorum(const NodesPlan& nodes)
      : hosts_(nodes.hosts.size()),
        least_(static_cast<std::size_t>(nodes.min)),
        own_(nodes.own_number()) {}

  // These have failed, too. A host that fails again counts once.
  bool enough_without(const std::set<int>& nodes) {
    failed_.insert(nodes.begin(), nodes.end());
    return hosts_ >= failed_.size() + least_ && (own_ < 0 || !failed_.contains(own_));
  }

 private:
  const std::size_t hosts_, least_;
  const int own_;
  std::set<int> failed_;
};

}  // namespace dlaunch
