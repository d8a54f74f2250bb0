#include "launcher/node/placement/pci.h"

#include <string_view>
#include <system_error>

#include "base/rank_set.h"

namespace dlaunch {

namespace fs = std::filesystem;

// /sys/devices/pci0000:00/0000:00:01.0/0000:17:00.0: all but the last, from the host bridge on.
std::vector<std::string> bridges_of(const fs::path& device) {
  std::error_code none;
  std::vector<std::string> found;
  for (const auto& part : fs::canonical(device, none)) {
    const std::string name = part;
    if (!found.empty() || name.starts_with("pci")) found.push_back(name);
  }
  if (!found.empty()) found.pop_back();
  return found;
}

std::vector<std::string> bridges_above(const std::string& bus, const std::string& root) {
  return bridges_of(root + "/sys/bus/pci/devices/" + bus);
}

std::vector<int> cpus_in_list(const std::string& list) {
  const std::size_t end = list.find_last_not_of(" \n");
  if (end == std::string::npos) return {};
  const auto cpus = parse_rank_set(std::string_view(list).substr(0, end + 1));
  if (!cpus) return {};
  return {cpus->begin(), cpus->end()};
}

}  // namespace dlaunch
