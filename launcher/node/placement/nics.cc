#include "launcher/node/placement/nics.h"

#include <algorithm>
#include <filesystem>

#include "base/small_file.h"
#include "launcher/node/placement/pci.h"

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

bool is_active(const fs::path& hca) {
  std::error_code none;
  for (const auto& port : fs::directory_iterator(hca / "ports", none)) {
    if (first_line_of(port.path() / "state").find("ACTIVE") != std::string::npos) return true;
  }
  return false;
}

std::size_t shared(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto [end, unused] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end - a.begin());
}

}  // namespace

std::vector<Hca> read_hcas(const std::string& root) {
  std::vector<Hca> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root + "/sys/class/infiniband", none)) {
    const fs::path device = entry.path() / "device";
    all.push_back({.name = entry.path().filename(),
                   .bridges = bridges_of(device),
                   .cpus = cpus_in_list(text_of(device / "local_cpulist")),
                   .active = is_active(entry.path())});
  }
  std::ranges::sort(all, [](const Hca& a, const Hca& b) { return a.name < b.name; });
  return all;
}

// Empty if all are near: that tells them apart as little as if none is.
std::vector<std::string> hcas_near(const std::vector<std::string>& bridges,
                                   const std::vector<int>& cpus, const std::vector<Hca>& hcas) {
  std::vector<const Hca*> active;
  for (const Hca& hca : hcas) {
    if (hca.active) active.push_back(&hca);
  }
  std::size_t most = 0;
  for (const Hca* hca : active) most = std::max(most, shared(bridges, hca->bridges));
  std::vector<std::string> near;
  for (const Hca* hca : active) {
    const bool is_near =
        most > 0 ? shared(bridges, hca->bridges) == most : !cpus.empty() && hca->cpus == cpus;
    if (is_near) near.push_back(hca->name);
  }
  return near.size() < active.size() ? near : std::vector<std::string>();
}

}  // namespace dlaunch
