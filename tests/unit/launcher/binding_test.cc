#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "launcher/node/placement/topology.h"
#include "synthetic.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;

namespace {

using CpuSets = std::vector<std::vector<int>>;

std::vector<int> from_to(int first, int last) {
  std::vector<int> cpus(static_cast<std::size_t>(last - first + 1));
  std::iota(cpus.begin(), cpus.end(), first);
  return cpus;
}

}  // namespace

TEST_CASE("none binds no rank") {
  CHECK(bind_ranks(synthetic("package:1 core:4 pu:1"), 3, BindPolicy::none) == CpuSets(3));
}

TEST_CASE("two ranks on eight cores get half of them each, not one core") {
  const CpuSets expected{from_to(0, 3), from_to(4, 7)};
  CHECK(bind_ranks(synthetic("package:1 core:8 pu:1"), 2, BindPolicy::core) == expected);
}

TEST_CASE("a rank gets all hardware threads of its core") {
  const CpuSets expected{{0, 1}, {2, 3}};
  CHECK(bind_ranks(synthetic("package:1 core:2 pu:2"), 2, BindPolicy::core) == expected);
}

TEST_CASE("2x64 cores: eight ranks by L3, NUMA and socket") {
  const auto topology = synthetic("package:2 numa:2 l3:4 core:8 pu:1");
  const auto by_l3 = bind_ranks(topology, 8, BindPolicy::l3);
  const auto by_numa = bind_ranks(topology, 8, BindPolicy::numa);
  const auto by_socket = bind_ranks(topology, 8, BindPolicy::socket);
  for (int rank = 0; rank < 8; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    CHECK(by_l3[at] == from_to(rank * 16, rank * 16 + 15));
    CHECK(by_numa[at] == from_to(rank / 2 * 32, rank / 2 * 32 + 31));
    CHECK(by_socket[at] == from_to(rank / 4 * 64, rank / 4 * 64 + 63));
  }
}

TEST_CASE("uneven: three ranks on eight cores differ by one core at most") {
  const CpuSets expected{{0, 1}, {2, 3, 4}, {5, 6, 7}};
  CHECK(bind_ranks(synthetic("package:1 core:8 pu:1"), 3, BindPolicy::core) == expected);
}

TEST_CASE("more ranks than cores share them evenly, neighbours together") {
  const CpuSets expected{{0}, {0}, {1}, {1}};
  CHECK(bind_ranks(synthetic("package:1 core:2 pu:1"), 4, BindPolicy::core) == expected);
}

TEST_CASE("sockets that a mask made unequal are shared in proportion") {
  auto cpus = std::set<int>{0, 1, 8, 9, 10, 11, 12, 13};
  const auto topology = restrict_to(synthetic("package:2 core:8 pu:1"), cpus);
  const auto sets = bind_ranks(topology, 4, BindPolicy::socket);
  CHECK(sets[0] == std::vector<int>{0, 1});
  for (std::size_t rank = 1; rank < 4; ++rank) CHECK(sets[rank] == from_to(8, 13));
}

TEST_CASE("a restricted mask binds only to CPUs in it") {
  const auto topology = restrict_to(synthetic("package:2 numa:1 core:4 pu:2"), {3, 6, 7, 12});
  for (const auto policy :
       {BindPolicy::core, BindPolicy::l3, BindPolicy::numa, BindPolicy::socket}) {
    for (int nproc = 1; nproc <= 9; ++nproc) {
      for (const auto& cpus : bind_ranks(topology, nproc, policy)) {
        CHECK_FALSE(cpus.empty());
        for (const int cpu : cpus) CHECK((cpu == 3 || cpu == 6 || cpu == 7 || cpu == 12));
      }
    }
  }
}

TEST_CASE("every machine, policy and count: no rank without CPUs, none idle, loads even") {
  for (const auto* machine :
       {"package:1 core:1 pu:1", "package:1 core:2 pu:2", "package:2 numa:1 l3:2 core:3 pu:2",
        "package:3 core:5 pu:1", "package:2 numa:2 l3:4 core:8 pu:2"}) {
    const auto topology = synthetic(machine);
    std::size_t all = 0;
    for (const auto& core : topology.cores) all += core.cpus.size();
    for (const auto policy :
         {BindPolicy::core, BindPolicy::l3, BindPolicy::numa, BindPolicy::socket}) {
      for (int nproc = 1; nproc <= 140; nproc += kSanitized ? 7 : 1) {
        const auto sets = bind_ranks(topology, nproc, policy);
        REQUIRE(sets.size() == static_cast<std::size_t>(nproc));
        std::map<int, int> load;
        for (const auto& cpus : sets) {
          REQUIRE_FALSE(cpus.empty());
          REQUIRE(std::is_sorted(cpus.begin(), cpus.end()));
          for (const int cpu : cpus) ++load[cpu];
        }
        REQUIRE(load.size() == all);
        const auto [low, high] = std::minmax_element(
            load.begin(), load.end(), [](auto a, auto b) { return a.second < b.second; });
        REQUIRE(high->second - low->second <= 1);
        REQUIRE(std::is_sorted(sets.begin(), sets.end()));
      }
    }
  }
}

TEST_CASE("picture: cores, caches, sockets, hardware threads") {
  const auto topology = synthetic("package:2 numa:1 l3:2 core:2 pu:2");
  const std::vector<std::string> expected{
      "socket 0 numa 0: 0 0 | 1 1",
      "socket 1 numa 1: 2 2 | 3 3",
      "rank 0: CPUs 0-3",
      "rank 1: CPUs 4-7",
      "rank 2: CPUs 8-11",
      "rank 3: CPUs 12-15",
      "each cell is a core with its ranks, '.' has none, '|' parts L3 caches",
  };
  CHECK(draw_bindings(topology, bind_ranks(topology, 4, BindPolicy::l3)) == expected);
}

TEST_CASE("picture: shared cores list their ranks, idle ones a dot") {
  const auto topology = synthetic("package:1 core:3 pu:1");
  const std::vector<std::string> expected{
      "socket 0 numa 0: 0-2   1   .",
      "rank 0: CPUs 0",
      "rank 1: CPUs 0-1",
      "rank 2: CPUs 0",
      "each cell is a core with its ranks, '.' has none, '|' parts L3 caches",
  };
  CHECK(draw_bindings(topology, {{0}, {0, 1}, {0}}) == expected);
}

TEST_CASE("picture: 64 cores of a socket are folded at 100 columns") {
  const auto topology = synthetic("package:2 numa:1 l3:8 core:8 pu:1");
  const auto lines = draw_bindings(topology, bind_ranks(topology, 16, BindPolicy::l3));
  REQUIRE(lines.size() == 6 + 16 + 1);
  CHECK(lines[0] ==
        "socket 0 numa 0:  0  0  0  0  0  0  0  0 |  1  1  1  1  1  1  1  1 |  2  2  2  2"
        "  2  2  2  2 |  3  3");
  CHECK(lines[1].starts_with("                  3  3  3"));
  for (const auto& line : lines) CHECK(line.size() <= 100);
}

TEST_CASE("picture: without binding there is nothing to draw") {
  const auto topology = synthetic("package:1 core:2 pu:1");
  CHECK(draw_bindings(topology, {}) ==
        std::vector<std::string>{"no worker is bound: all may use all 2 cores"});
}
