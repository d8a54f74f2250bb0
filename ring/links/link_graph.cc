#include "ring/links/link_graph.h"

#include <bit>

namespace dlaunch {

bool LinkGraph::linked(int a, int b) const {
  if (a == b) return false;
  const auto way = static_cast<unsigned>(a < b ? b - a : a - b);
  return all_ || std::has_single_bit(way) ||
         std::has_single_bit(static_cast<unsigned>(ranks_) - way);
}

std::vector<int> LinkGraph::neighbours(int rank) const {
  std::vector<int> found;
  for (int r = 0; r < ranks_; ++r) {
    if (linked(rank, r)) found.push_back(r);
  }
  return found;
}

// All ranks have equally many.
bool LinkGraph::complete() const {
  return all_ || static_cast<int>(neighbours(0).size()) == ranks_ - 1;
}

int tree_parent(int rank) { return rank & (rank - 1); }

std::vector<int> tree_children(int rank, int ranks) {
  std::vector<int> children;
  const int end = rank == 0 ? ranks : rank & -rank;
  for (int step = 1; step < end && rank + step < ranks; step *= 2) children.push_back(rank + step);
  return children;
}

int tree_depth(int rank) { return std::popcount(static_cast<unsigned>(rank)); }

}  // namespace dlaunch
