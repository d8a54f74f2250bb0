#include "launcher/node/placement/accelerators.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "tests/unit/temp_folder.h"

using namespace dlaunch;
namespace fs = std::filesystem;

TEST_CASE("accelerators are counted by what the kernel shows") {
  TempFolder folder;
  const fs::path root = folder.path;
  const auto device = [&](const char* name, const char* driver) {
    fs::create_directories(root / "sys/class" / name / "device");
    fs::create_symlink(std::string("../drivers/") + driver,
                       root / "sys/class" / name / "device/driver");
  };
  device("drm/renderD128", "xe");
  device("drm/renderD129", "i915");
  device("drm/renderD130", "amdgpu");
  device("drm/card0", "xe");
  device("accel/accel0", "habanalabs");
  device("accel/accel1", "intel_vpu");
  fs::create_directories(root / "dev");
  for (const char* name : {"davinci0", "davinci1", "davinci_manager"}) {
    std::ofstream(root / "dev" / name) << "";
  }
  CHECK(count_accelerators("xpu", root) == 2);
  CHECK(count_accelerators("hpu", root) == 1);
  CHECK(count_accelerators("npu", root) == 2);
  CHECK(count_accelerators("mlu", root) == 0);
  CHECK_FALSE(count_accelerators("numa", root).has_value());
}
