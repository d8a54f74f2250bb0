#include "ring/links/link_graph.h"

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

// The ranks that news of rank 0 reaches where rank `silent` passes nothing on, and its steps.
std::pair<std::size_t, int> reached(const LinkGraph& graph, int silent) {
  std::set<int> known{0};
  std::vector<int> edge{0};
  int steps = 0;
  for (std::vector<int> next; !edge.empty(); edge = std::exchange(next, {})) {
    for (const int from : edge) {
      if (from == silent) continue;
      for (const int to : graph.neighbours(from)) {
        if (known.insert(to).second) next.push_back(to);
      }
    }
    steps += next.empty() ? 0 : 1;
  }
  return {known.size(), steps};
}

}  // namespace

TEST_CASE("link graph: few ranks have a link per pair, many have 2 log2 N each") {
  CHECK(LinkGraph(40, true).complete());
  CHECK(LinkGraph(40, true).neighbours(7).size() == 39);
  for (const int ranks : {2, 3, 4, 5}) CHECK(LinkGraph(ranks, false).complete());
  CHECK_FALSE(LinkGraph(8, false).complete());
  CHECK(LinkGraph(8, false).neighbours(0) == std::vector<int>{1, 2, 4, 6, 7});
  CHECK(LinkGraph(1024, false).neighbours(5).size() == 19);
  CHECK(LinkGraph(10'000, false).neighbours(9'999).size() == 28);
}

TEST_CASE("link graph: both ranks of a pair know it, and news reach all around a silent rank") {
  for (const int ranks : {6, 7, 13, 33, 64, 100, 257}) {
    CAPTURE(ranks);
    const LinkGraph graph(ranks, false);
    for (int a = 0; a < ranks; ++a) {
      CHECK_FALSE(graph.linked(a, a));
      for (int b = 0; b < ranks; ++b) CHECK(graph.linked(a, b) == graph.linked(b, a));
    }
    const int bits = std::bit_width(static_cast<unsigned>(ranks));
    CHECK(reached(graph, -1) ==
          std::pair(static_cast<std::size_t>(ranks), reached(graph, -1).second));
    CHECK(reached(graph, -1).second <= bits);
    for (int silent = 1; silent < ranks; ++silent) {
      CHECK(reached(graph, silent).first == static_cast<std::size_t>(ranks));
    }
  }
}

TEST_CASE("link graph: the tree has each rank once, and each of its edges is a link") {
  for (int ranks = 1; ranks < 200; ++ranks) {
    const LinkGraph graph(ranks, false);
    int children = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const int child : tree_children(rank, ranks)) {
        ++children;
        CHECK(tree_parent(child) == rank);
        CHECK(tree_depth(child) == tree_depth(rank) + 1);
        CHECK(graph.linked(rank, child));
      }
    }
    CHECK(children == ranks - 1);
  }
}
