// LinkGraph: which ranks of a communicator have a control link from the start. Few ranks have one
// link per pair. Many have links at distances that are powers of two, both ways around the ranks,
// as the fingers of Chord (Stoica et al., 2001): 2 log2 N links per rank instead of N - 1, and
// news reach all in log2 N steps, also if some ranks stand still. Pure.
#pragma once

#include <vector>

namespace dlaunch {

class LinkGraph {
 public:
  // The most ranks that have a link per pair by default.
  static constexpr int kAllLinked = 32;

  // all: one link per pair.
  LinkGraph(int ranks, bool all) : ranks_(ranks), all_(all) {}

  int ranks() const { return ranks_; }
  bool linked(int a, int b) const;
  // Ascending, without the rank itself.
  std::vector<int> neighbours(int rank) const;
  // Each pair has a link.
  bool complete() const;

 private:
  int ranks_;
  bool all_;
};

// A binomial tree with rank 0 as its root, whose edges are links of each graph: a rank's parent is
// the rank without its lowest bit.
int tree_parent(int rank);
std::vector<int> tree_children(int rank, int ranks);
// The number of steps from the root; at most the number of bits of a rank.
int tree_depth(int rank);

}  // namespace dlaunch
