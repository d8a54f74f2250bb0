#include "launcher/node/placement/gpus.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/unit/temp_folder.h"

using namespace dlaunch;

namespace {

GpuFiles gpu(const std::string& bus, const std::string& uuid, const std::string& cpus) {
  return {.bus = bus,
          .information = "Model: \t\t NVIDIA Something\nIRQ:   \t\t 120\nGPU UUID: \t " + uuid +
                         "\nBus Location: \t " + bus + "\nDevice Minor: \t 0\n",
          .local_cpus = cpus};
}

const std::vector<GpuFiles> kTwo = {gpu("0000:17:00.0", "GPU-aa11", "0-3\n"),
                                    gpu("0000:65:00.0", "GPU-bb22", "4-7\n")};

std::vector<std::string> gpu_names(const std::vector<GpuFiles>& files,
                                   const std::optional<std::string>& visible) {
  const auto gpus = usable_gpus(files, visible);
  REQUIRE(gpus);
  std::vector<std::string> all;
  for (const Gpu& one : *gpus) all.push_back(one.name);
  return all;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("gpus: all, or those of CUDA_VISIBLE_DEVICES up to the first wrong name") {
  CHECK(gpu_names(kTwo, std::nullopt) == Names{"GPU-aa11", "GPU-bb22"});
  CHECK(gpu_names(kTwo, "1,0") == Names{"1", "0"});
  CHECK(gpu_names(kTwo, "GPU-bb") == Names{"GPU-bb"});
  CHECK(gpu_names(kTwo, "1, GPU-aa11,7,0") == Names{"1", "GPU-aa11"});
  CHECK(gpu_names(kTwo, "").empty());
  CHECK(gpu_names(kTwo, "-1,0").empty());
  CHECK(gpu_names({}, std::nullopt).empty());
  CHECK((*usable_gpus(kTwo, "1"))[0].cpus == std::vector<int>{4, 5, 6, 7});
}

TEST_CASE("gpus: MIG instances are used by name, and not otherwise") {
  auto cut = kTwo;
  cut[1].cut = true;
  CHECK(gpu_names(cut, "MIG-1,MIG-2") == Names{"MIG-1", "MIG-2"});
  CHECK(gpu_names(cut, "0") == Names{"0"});
  for (const auto& visible : {std::optional<std::string>(), std::optional<std::string>("0,1")}) {
    const auto refused = usable_gpus(cut, visible);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().what.starts_with("GPU 0000:65:00.0 is divided into MIG instances"));
  }
}

TEST_CASE("gpus: ranks get the usable CPUs near their GPU") {
  const auto gpus = usable_gpus(kTwo, std::nullopt);
  const auto topology = synthetic_topology("package:2 numa:1 l3:1 core:4 pu:1");
  REQUIRE(topology);
  using Cpus = std::vector<std::vector<int>>;
  CHECK(bind_to_gpus(*topology, 3, *gpus) == Cpus{{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}});
  CHECK(bind_to_gpus(restrict_to(*topology, {2, 3, 4}), 2, *gpus) == Cpus{{2, 3}, {4}});
  CHECK(bind_to_gpus(*topology, 2, {{"MIG-1", {}}}) == Cpus{{}, {}});
}

TEST_CASE("gpus: what the files of a host say") {
  const TempFolder folder;
  namespace fs = std::filesystem;
  const auto put = [&](const std::string& path, const std::string& text) {
    const fs::path whole = folder.path.string() + path;
    fs::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  };
  for (const GpuFiles& one : {kTwo[1], kTwo[0]}) {
    put("/proc/driver/nvidia/gpus/" + one.bus + "/information", one.information);
    put("/sys/bus/pci/devices/" + one.bus + "/local_cpulist", one.local_cpus);
  }
  const auto files = read_gpu_files(folder.path.string());
  REQUIRE(files.size() == 2);
  CHECK(files[0].bus == "0000:17:00.0");
  CHECK_FALSE(files[0].cut);
  CHECK((*usable_gpus(files, std::nullopt))[1].name == "GPU-bb22");
  CHECK((*usable_gpus(files, std::nullopt))[1].cpus == std::vector<int>{4, 5, 6, 7});
  put("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "");
  CHECK(read_gpu_files(folder.path.string())[0].cut);
  CHECK(read_gpu_files(folder.path.string() + "/nothing").empty());
}
