// AgreementTree: ranks that have links with their neighbours only agree along a tree of these links
// (ring/links/link_graph.h): what they say is joined on the way to rank 0, and its verdict goes
// back to all, with descriptors. No control thread may read the links meanwhile. Some of the ranks,
// such as those of a host, may agree along a tree of their own, whose edges need links.
#pragma once

#include <functional>

#include "base/clock.h"
#include "ring/links/link_message.h"
#include "ring/links/mesh.h"

namespace dlaunch {

// The answer of a rank that has lost this one during the bootstrap.
LinkMessage failed_at(const Mesh& mesh, int rank, Error error);

class AgreementTree {
 public:
  // deadline: of the bootstrap. The ranks stay longer for each other's news, and those next to rank
  // 0 longest: so a rank that waits for a waiting rank gets the name of the one that is missing.
  AgreementTree(int rank, const Mesh& mesh, TimePoint deadline);
  // The same among `members`, ascending, `rank` one of them: the first one is the root.
  AgreementTree(int rank, std::vector<int> members, const Mesh& mesh, TimePoint deadline);

  // The ranks with which this one needs a link.
  std::vector<int> neighbours() const;

  // The root makes the verdict of what all say together.
  using Decide = std::function<LinkMessage(LinkMessage all)>;
  // All ranks call it equally often. Answer::failed names a rank that failed or was lost.
  LinkMessage agree(LinkMessage own, const Decide& decide);

 private:
  LinkMessage hear_children(LinkMessage own) const;
  LinkMessage hear_parent(const LinkMessage& own) const;
  void tell_children(const LinkMessage& verdict) const;
  LinkMessage receive(int rank, int steps) const;
  int link(int rank) const { return mesh_.peers[static_cast<std::size_t>(rank)].link.get(); }

  int member(int place) const { return members_[static_cast<std::size_t>(place)]; }

  const std::vector<int> members_;
  const int place_;  // of this rank among them
  const Mesh& mesh_;
  const TimePoint deadline_;
  const std::vector<int> children_;  // places
  const int height_;                 // the most steps from this rank down to a leaf
  const int levels_;                 // of the whole tree
  int rounds_ = 0;                   // agreed before
};

}  // namespace dlaunch
