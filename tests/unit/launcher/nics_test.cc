#include "launcher/node/placement/nics.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "launcher/node/placement/gpus.h"
#include "launcher/node/placement/pci.h"
#include "launcher/node/placement/topology.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;

namespace {

using Names = std::vector<std::string>;

// Two sockets, with two switches each.
std::vector<Hca> eight_rails() {
  return {{"mlx5_0", {"pci0000:00", "0000:00:01.0", "0000:01:00.0"}, {0, 1, 2, 3}, true},
          {"mlx5_1", {"pci0000:00", "0000:00:02.0", "0000:05:00.0"}, {0, 1, 2, 3}, true},
          {"mlx5_2", {"pci0000:80", "0000:80:01.0", "0000:81:00.0"}, {4, 5, 6, 7}, true},
          {"mlx5_3", {"pci0000:80", "0000:80:01.0", "0000:81:00.0"}, {4, 5, 6, 7}, true}};
}

}  // namespace

TEST_CASE("nics: adapters with the fewest bridges between them and the GPU") {
  const auto hcas = eight_rails();
  const Names behind_first = {"pci0000:00", "0000:00:01.0", "0000:01:00.0"};
  CHECK(hcas_near(behind_first, {0, 1, 2, 3}, hcas) == Names{"mlx5_0"});
  CHECK(hcas_near({"pci0000:80", "0000:80:01.0"}, {}, hcas) == Names{"mlx5_2", "mlx5_3"});
  CHECK(hcas_near({"pci0000:00"}, {}, hcas) == Names{"mlx5_0", "mlx5_1"});
}

TEST_CASE("nics: without a common bridge, adapters of the same CPUs") {
  const auto topology = synthetic_topology("package:2 numa:1 core:4 pu:1");
  REQUIRE(topology);
  std::vector<int> second;  // socket's CPUs
  for (const CpuCore& core : topology->cores) {
    if (core.socket == 1) second.insert(second.end(), core.cpus.begin(), core.cpus.end());
  }
  CHECK(hcas_near({"pci0000:c0"}, second, eight_rails()) == Names{"mlx5_2", "mlx5_3"});
  CHECK(hcas_near({}, {}, eight_rails()).empty());
}

TEST_CASE("nics: no list if all are equally near, and no adapters without a link") {
  auto hcas = eight_rails();
  CHECK(hcas_near({"pci0000:c0"}, {8, 9}, hcas).empty());
  CHECK(hcas_near({"pci0000:00"}, {}, {hcas[0], hcas[1]}).empty());
  CHECK(hcas_near({"pci0000:00"}, {}, {hcas[0]}).empty());
  CHECK(hcas_near({"pci0000:00"}, {}, {}).empty());
  hcas[0].active = false;
  CHECK(hcas_near(hcas[0].bridges, hcas[0].cpus, hcas) == Names{"mlx5_1"});
}

TEST_CASE("nics: what the files of a host say") {
  namespace fs = std::filesystem;
  const TempFolder folder;
  const std::string root = folder.path.string();
  const fs::path bridge = root + "/sys/devices/pci0000:00/0000:00:01.0";
  const auto device = [&](const std::string& name) {
    fs::create_directories(bridge / name);
    std::ofstream(bridge / name / "local_cpulist") << "0-1,4\n";
    return bridge / name;
  };
  fs::create_directories(root + "/sys/bus/pci/devices");
  fs::create_directory_symlink(device("0000:17:00.0"), root + "/sys/bus/pci/devices/0000:17:00.0");
  for (const char* name : {"mlx5_0", "mlx5_1"}) {
    const fs::path hca = root + "/sys/class/infiniband/" + name;
    fs::create_directories(hca / "ports/1");
    std::ofstream(hca / "ports/1/state") << (name[5] == '0' ? "4: ACTIVE\n" : "1: DOWN\n");
    fs::create_directory_symlink(device("0000:18:00." + std::string(1, name[5])), hca / "device");
  }
  CHECK(bridges_above("0000:17:00.0", root) == Names{"pci0000:00", "0000:00:01.0"});
  CHECK(bridges_above("0000:99:00.0", root).empty());
  const auto hcas = read_hcas(root);
  REQUIRE(hcas.size() == 2);
  CHECK(hcas[0].name == "mlx5_0");
  CHECK(hcas[0].active);
  CHECK_FALSE(hcas[1].active);
  CHECK(hcas[0].cpus == std::vector<int>{0, 1, 4});
  CHECK(hcas[1].bridges == bridges_above("0000:17:00.0", root));
  CHECK(read_hcas(root + "/nothing").empty());
}
