#include "cli/bench/machine_limits.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace bench {
namespace {

std::string size_name(std::size_t bytes) {
  constexpr std::size_t kMi = 1024 * 1024;
  return bytes >= kMi ? fmt::format("{} MiB", bytes / kMi) : fmt::format("{} KiB", bytes / 1024);
}

}  // namespace

std::vector<LimitRow> rows(const Limits& limits) {
  std::vector<LimitRow> all;
  const auto add = [&](const char* what, const Level& level, double Rates::*rate,
                       const char* bounds) {
    all.push_back({fmt::format("{} {}", what, size_name(level.bytes)), level.alone.*rate,
                   limits.busy > 1 ? level.together.*rate : 0, "GB/s", bounds});
  };
  for (const auto& level : limits.levels) {
    add("read", level, &Rates::read, "loads from buffers of that size together");
    add("write", level, &Rates::write, "stores to them");
    add("copy", level, &Rates::copy, "equally many loads and stores");
    add("update", level, &Rates::update, "as many, in place");
  }
  const auto one = [&](const char* name, const dlaunch::Result<double>& value, const char* unit,
                       const char* bounds) {
    all.push_back({name, value, 0, unit, bounds});
  };
  one("pass 256 KiB", limits.pass_gbs, "GB/s", "data that a rank stages for another one");
  one("line hand-off", limits.handoff_us, "us", "small operations, a core per rank");
  one("futex wake", limits.wake_us, "us", "a rank that waits long enough to sleep");
  one("futex switch", limits.switch_us, "us", "small operations, more ranks than cores");
  one("TCP loopback", limits.tcp_gbs, "GB/s", "one stream of --transport tcp");
  one("TCP round trip", limits.tcp_rtt_us, "us", "small operations of --transport tcp");
  return all;
}

std::string limits_table(const Limits& limits) {
  std::string text = fmt::format(
      "# Limits of this machine, measured now; cores: {}\n# {:<16} {:>9} {:>12}  {:<5} {}\n",
      limits.cores, "limit", "one core", fmt::format("each of {}", limits.busy), "unit", "bounds");
  for (const auto& row : rows(limits)) {
    const std::string together = row.together > 0 ? fmt::format("{:.2f}", row.together) : "-";
    text += row.value ? fmt::format("# {:<16} {:>9.2f} {:>12}  {:<5} {}\n", row.name, *row.value,
                                    together, row.unit, row.bounds)
                      : fmt::format("# {:<16} {:>9} {:>12}  {:<5} {}\n", row.name, "-", "-",
                                    row.unit, "not measured: " + row.value.error().what);
  }
  return text;
}

std::string limits_csv(const Limits& limits) {
  std::string text = "limit,one_core,each_of_several,cores,unit\n";
  for (const auto& row : rows(limits)) {
    text += fmt::format("{},{},{},{},{}\n", row.name,
                        row.value ? fmt::format("{:.4f}", *row.value) : "",
                        row.together > 0 ? fmt::format("{:.4f}", row.together) : "",
                        row.together > 0 ? limits.busy : 1, row.unit);
  }
  return text;
}

std::string limits_json(const Limits& limits) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& row : rows(limits)) {
    nlohmann::json one = {{"limit", row.name}, {"unit", row.unit}, {"bounds", row.bounds}};
    if (row.value) {
      one["one_core"] = *row.value;
    } else {
      one["not_measured"] = row.value.error().what;
    }
    if (row.together > 0) one["each_of_several"] = row.together;
    all.push_back(one);
  }
  return nlohmann::json{{"cores", limits.cores}, {"together", limits.busy}, {"limits", all}}.dump(
      2);
}

}  // namespace bench
