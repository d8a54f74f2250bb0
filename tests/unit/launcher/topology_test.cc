#include "launcher/node/placement/topology.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

#include <doctest/doctest.h>

#include "synthetic.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;

namespace {

// A folder that looks like /sys/fs/cgroup.
class FakeCgroups {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root() const { return folder_.path.string(); }

 private:
  TempFolder folder_;
};

}  // namespace

TEST_CASE("a synthetic machine of 2x64 cores shows its sockets, NUMA nodes and caches") {
  const auto topology = synthetic("package:2 numa:2 l3:4 core:8 pu:2");
  REQUIRE(topology.cores.size() == 128);
  CHECK(topology.cores[0].cpus == std::vector<int>{0, 1});
  CHECK(topology.cores[127].cpus == std::vector<int>{254, 255});
  CHECK(topology.cores[63].socket == 0);
  CHECK(topology.cores[64].socket == 1);
  CHECK(topology.cores[31].numa == 0);
  CHECK(topology.cores[32].numa == 1);
  CHECK(topology.cores[64].numa == 2);
  CHECK(topology.cores[7].l3 == 0);
  CHECK(topology.cores[8].l3 == 1);
  CHECK(topology.cores[127].l3 == 15);
}

TEST_CASE("without L3 caches, sockets take their place") {
  const auto topology = synthetic("package:2 core:4 pu:1");
  CHECK(topology.cores[3].l3 == 0);
  CHECK(topology.cores[4].l3 == 1);
}

TEST_CASE("a malformed description is not a topology") {
  CHECK_FALSE(synthetic_topology("package:two"));
  CHECK_FALSE(synthetic_topology(""));
}

TEST_CASE("the machine we run on shows exactly the CPUs of our affinity mask") {
  auto topology = discover_topology();
  REQUIRE(topology);
  std::set<int> shown;
  for (const auto& core : topology->cores) shown.insert(core.cpus.begin(), core.cpus.end());
  cpu_set_t mask;
  REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
  std::set<int> ours;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) ours.insert(cpu);
  }
  CHECK(shown == ours);
  CHECK(usable_cpus().affinity == static_cast<int>(ours.size()));
}

TEST_CASE("a narrower affinity mask is seen") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  auto topology = discover_topology();
  const auto cpus = usable_cpus();
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
  REQUIRE(topology);
  REQUIRE(topology->cores.size() == 1);
  CHECK(topology->cores[0].cpus == std::vector<int>{first});
  CHECK(cpus.affinity == 1);
  CHECK(cpus.usable() == 1);
}

TEST_CASE("a restricted topology loses hardware threads first, then cores") {
  const auto cut = restrict_to(synthetic("package:1 core:3 pu:2"), {1, 2, 3});
  REQUIRE(cut.cores.size() == 2);
  CHECK(cut.cores[0].cpus == std::vector<int>{1});
  CHECK(cut.cores[1].cpus == std::vector<int>{2, 3});
}

TEST_CASE("cpu.max is a ratio, or no limit") {
  CHECK(parse_cpu_max("200000 100000\n") == 2.0);
  CHECK(parse_cpu_max("150000 100000") == 1.5);
  CHECK(parse_cpu_max("max 100000\n") == 0);
  CHECK(parse_cpu_max("") == 0);
  CHECK(parse_cpu_max("100000") == 0);
  CHECK(parse_cpu_max("x y") == 0);
  CHECK(parse_cpu_max("100000 0") == 0);
}

TEST_CASE("cpu.cfs_quota_us is a ratio, or no limit") {
  CHECK(parse_cfs("400000\n", "100000\n") == 4.0);
  CHECK(parse_cfs("-1\n", "100000\n") == 0);
  CHECK(parse_cfs("", "") == 0);
}

TEST_CASE("usable CPUs: the quota is rounded up and never widens the mask") {
  CHECK(UsableCpus{8, 0}.usable() == 8);
  CHECK(UsableCpus{8, 1.5}.usable() == 2);
  CHECK(UsableCpus{8, 0.2}.usable() == 1);
  CHECK(UsableCpus{2, 64}.usable() == 2);
  CHECK(UsableCpus{0, 0}.usable() == 1);
}

TEST_CASE("every cgroup on the way to the root sets a limit (v2)") {
  FakeCgroups cgroups;
  cgroups.write("/job/cpu.max", "300000 100000\n");
  cgroups.write("/job/step/cpu.max", "max 100000\n");
  CHECK(cgroup_quota(cgroups.root(), "0::/job/step\n") == 3.0);
  cgroups.write("/job/step/cpu.max", "200000 100000\n");
  CHECK(cgroup_quota(cgroups.root(), "0::/job/step\n") == 2.0);
  CHECK(cgroup_quota(cgroups.root(), "0::/\n") == 0);
}

TEST_CASE("the cpu controller of cgroup v1 is found under both of its names") {
  FakeCgroups cgroups;
  cgroups.write("/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
  cgroups.write("/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_quota(cgroups.root(), "5:cpuset:/box\n4:cpu,cpuacct:/box\n") == 2.5);
  CHECK(cgroup_quota(cgroups.root(), "5:cpuset:/box\n") == 0);
}

TEST_CASE("a container whose cgroup path is the host's reads the limit at its own root") {
  FakeCgroups cgroups;
  cgroups.write("/cpu.max", "100000 100000\n");
  CHECK(cgroup_quota(cgroups.root(), "0::/docker/0123abcd\n") == 1.0);
}

TEST_CASE("strange lines in /proc/self/cgroup are no limit") {
  for (const char* text : {"", "\n", ":", "::", "0::", "0::relative", "cpu", "1:cpu:"}) {
    CHECK(cgroup_quota("/nonexistent", text) == 0);
  }
}
