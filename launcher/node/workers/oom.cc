#include "launcher/node/workers/oom.h"

#include <charconv>

#include <fmt/format.h>

#include "base/small_file.h"
#include "base/text.h"

namespace dlaunch {
namespace {

// Our path in the hierarchy: the line "0::/path" of version 2, or "N:memory:/path" of version 1.
std::string path_in(const std::string& cgroups, std::string_view key) {
  for (const auto line : split_words(cgroups, '\n')) {
    const auto from = line.find(key);
    if (from != line.npos) return std::string(line.substr(from + key.size()));
  }
  return "";
}

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

bool find_count(std::string_view text, std::string_view name, std::uint64_t& count) {
  for (const auto line : split_words(text, '\n')) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') continue;
    const auto digits = line.substr(name.size() + 1);
    return std::from_chars(digits.data(), digits.data() + digits.size(), count).ec == std::errc();
  }
  return false;
}

OomCounter read_oom_counter() {
  OomCounter counter;
  const std::string cgroups = text_of("/proc/self/cgroup");
  const std::string v1 = path_in(cgroups, ":memory:");
  counter.cgroup = v1.empty() ? path_in(cgroups, "0::") : v1;
  const std::string root = v1.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
  // In a container the path is the host's, and our visible part begins at the root.
  for (const std::string& folder : {root + counter.cgroup, root}) {
    const auto text = text_of(folder + (v1.empty() ? "/memory.events" : "/memory.oom_control"));
    if (!find_count(text, "oom_kill", counter.kills)) continue;
    counter.known = true;
    const auto limit =
        number(text_of(folder + (v1.empty() ? "/memory.max" : "/memory.limit_in_bytes")));
    counter.limit = limit < std::uint64_t{1} << 60 ? limit : 0;
    return counter;
  }
  return counter;
}

std::string describe_oom(const OomCounter& before, const OomCounter& after) {
  if (!before.known || !after.known || after.kills <= before.kills) return "";
  const std::string limit = after.limit > 0 ? fmt::format(" (limit {:.1f} GiB)",
                                                          static_cast<double>(after.limit) / 0x1p30)
                                            : "";
  return fmt::format("memory cgroup {}{}: out-of-memory kills rose from {} to {}", after.cgroup,
                     limit, before.kills, after.kills);
}

}  // namespace dlaunch
