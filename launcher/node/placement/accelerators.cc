#include "launcher/node/placement/accelerators.h"

#include <algorithm>
#include <filesystem>

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

struct AcceleratorKind {
  std::string_view name;
  std::string_view folder;
  std::string_view prefix;                // of a device's name there, a number follows
  std::string_view driver, other_driver;  // by device/driver; "": any
};

constexpr AcceleratorKind kKinds[] = {{"xpu", "/sys/class/drm", "renderD", "i915", "xe"},
                                      {"hpu", "/sys/class/accel", "accel", "habanalabs", ""},
                                      {"npu", "/dev", "davinci", "", ""},
                                      {"mlu", "/dev", "cambricon_dev", "", ""},
                                      {"musa", "/dev", "mtgpu.", "", ""}};
constexpr std::string_view kNames[] = {"xpu", "hpu", "npu", "mlu", "musa"};

bool is_numbered(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) && name.size() > prefix.size() &&
         name.find_first_not_of("0123456789", prefix.size()) == name.npos;
}

bool has_driver(const fs::path& device, const AcceleratorKind& kind) {
  if (kind.driver.empty()) return true;
  std::error_code none;
  const auto driver = fs::read_symlink(device / "device" / "driver", none).filename().string();
  return !driver.empty() && (driver == kind.driver || driver == kind.other_driver);
}

}  // namespace

std::span<const std::string_view> accelerator_kinds() { return kNames; }

std::optional<int> count_accelerators(std::string_view kind, const std::string& root) {
  const auto* known = std::ranges::find(kKinds, kind, &AcceleratorKind::name);
  if (known == std::end(kKinds)) return std::nullopt;
  int count = 0;
  std::error_code none;
  for (fs::directory_iterator it(root + std::string(known->folder), none), end; !none && it != end;
       it.increment(none)) {
    if (is_numbered(it->path().filename().string(), known->prefix) &&
        has_driver(it->path(), *known)) {
      ++count;
    }
  }
  return count;
}

}  // namespace dlaunch
