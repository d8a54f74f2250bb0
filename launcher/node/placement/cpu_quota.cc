#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/cpus.h"
#include "base/small_file.h"
#include "base/text.h"
#include "launcher/node/placement/topology.h"

namespace dlaunch {
namespace {

std::string_view first_word(std::string_view& text) {
  const auto begin = text.find_first_not_of(" \t\n");
  text.remove_prefix(std::min(begin, text.size()));
  const auto end = std::min(text.find_first_of(" \t\n"), text.size());
  const auto word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

double ratio(std::string_view quota, std::string_view period) {
  long long q = 0;
  long long p = 0;
  const auto whole = [](std::string_view text, long long& value) {
    const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
    return err == std::errc() && end == text.data() + text.size();
  };
  if (!whole(quota, q) || !whole(period, p) || q <= 0 || p <= 0) return 0;  // -1 and "max": none
  return static_cast<double>(q) / static_cast<double>(p);
}

std::optional<double> quota_in_folder(const std::string& folder, bool v2) {
  if (v2) {
    const auto text = read_small_file(folder + "/cpu.max");
    return text ? std::optional(parse_cpu_max(*text)) : std::nullopt;
  }
  const auto quota = read_small_file(folder + "/cpu.cfs_quota_us");
  const auto period = read_small_file(folder + "/cpu.cfs_period_us");
  return quota && period ? std::optional(parse_cfs(*quota, *period)) : std::nullopt;
}

void keep_smaller(double& quota, double other) {
  if (other > 0 && (quota == 0 || other < quota)) quota = other;
}

// Every level limits what is below it.
double quota_up_from(const std::string& mount, std::string path, bool v2) {
  double quota = 0;
  while (true) {
    if (const auto here = quota_in_folder(mount + path, v2)) keep_smaller(quota, *here);
    if (path.empty()) return quota;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

double parse_cpu_max(std::string_view text) {
  const auto quota = first_word(text);
  return ratio(quota, first_word(text));
}

double parse_cfs(std::string_view quota_us, std::string_view period_us) {
  return ratio(first_word(quota_us), first_word(period_us));
}

double cgroup_quota(const std::string& mount, std::string_view memberships) {
  double quota = 0;
  for (const auto line : split_words(memberships, '\n')) {
    // "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1).
    const auto first = line.find(':');
    const auto second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto controllers = split_words(line.substr(first + 1, second - first - 1), ',');
    std::string path(line.substr(second + 1));
    if (path.empty() || path[0] != '/' || path == "/") path.clear();
    if (controllers.empty()) {
      for (const char* folder : {"", "/unified"}) {
        keep_smaller(quota, quota_up_from(mount + folder, path, true));
      }
    } else if (std::ranges::count(controllers, "cpu") > 0) {
      for (const char* folder : {"/cpu", "/cpu,cpuacct"}) {
        keep_smaller(quota, quota_up_from(mount + folder, path, false));
      }
    }
  }
  return quota;
}

int UsableCpus::usable() const {
  if (quota <= 0) return std::max(affinity, 1);
  return std::max(1, std::min(affinity, static_cast<int>(std::ceil(quota))));
}

UsableCpus usable_cpus() {
  UsableCpus cpus;
  cpus.affinity = std::max(1, count_cpus(own_cpus()));
  cpus.quota = cgroup_quota("/sys/fs/cgroup", text_of("/proc/self/cgroup"));
  return cpus;
}

}  // namespace dlaunch
