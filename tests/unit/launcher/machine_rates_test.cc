// What the collectives of a job could reach at most.
#include "launcher/lead/metrics/machine_rates.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/bus_factor.h"
#include "base/clock.h"
#include "base/flight_tally.h"
#include "base/interfaces.h"

namespace dlaunch {
namespace {

TEST_CASE("machine rates: copies of each size, in a moment") {
  const TimePoint begin = steady_now();
  const auto rates = measure_copies(2);
  CHECK(steady_now() - begin <
        std::chrono::seconds(20));  // a busy machine may take longer than 40 ms
  REQUIRE(rates.size() == kTallySizeClasses);
  for (const double rate : rates) {
    CHECK(rate > 1e6);
    CHECK(rate < 1e13);
  }
  CHECK(rates[2] == rates[3]);  // both larger than the caches
}

TEST_CASE("machine rates: one copier for each rank, but not more than there are cores, or 16") {
  CHECK(copiers_for(4, 8) == 4);
  CHECK(copiers_for(4, 2) == 2);
  CHECK(copiers_for(64, 128) == 16);
  CHECK(copiers_for(4, 0) == 1);  // the number of cores is not known
  CHECK(copiers_for(0, 8) == 1);
}

TEST_CASE("machine rates: without memory nothing is measured") {
  CHECK(measure_copies(2, std::size_t{1} << 60).empty());
}

TEST_CASE("machine rates: the line is the interface with the address, at the kernel's speed") {
  CHECK(line_of("192.0.2.1", "/sys").interface.empty());
  for (const HostAddress& one : host_addresses()) {
    if (one.loopback) continue;
    const std::string sys = std::filesystem::temp_directory_path() / "machine_rates_test";
    const auto folder = std::filesystem::path(sys) / "class/net" / one.interface;
    std::filesystem::create_directories(folder);
    CHECK(line_of(one.address, sys).bytes_per_s == 0);
    std::ofstream(folder / "speed") << "10000\n";
    CHECK(line_of(one.address, sys).interface == one.interface);
    CHECK(line_of(one.address, sys).bytes_per_s == 1.25e9);
    std::ofstream(folder / "speed") << "-1\n";  // of a virtual one
    CHECK(line_of(one.address, sys).bytes_per_s == 0);
    std::filesystem::remove_all(sys);
    break;
  }
}

TEST_CASE("machine rates: as JSON") {
  const auto of_hosts = nlohmann::json::parse(render_json({.hosts = 2, .interface = "eth0"}));
  CHECK(of_hosts["hosts"] == 2);
  CHECK(of_hosts["line_bytes_per_s"].is_null());
  const MachineRates here{.copiers = 4, .copies = std::vector<double>(kTallySizeClasses, 3e9)};
  const auto of_one = nlohmann::json::parse(render_json(here));
  CHECK(of_one["copies_bytes_per_s"]["4KiB"] == 3e9);
  CHECK(of_one["copies_bytes_per_s"].size() == kTallySizeClasses);
}

TEST_CASE("machine rates: what the bus bandwidth between hosts can be") {
  CHECK(bus_limit("all_reduce", 1e9, 3, 3) == 1e9);
  CHECK(bus_limit("all_reduce", 1e9, 8, 2) == doctest::Approx(1.75e9));
  CHECK(bus_limit("broadcast", 1e9, 8, 2) == 1e9);
  CHECK(bus_limit("all_to_all", 1e9, 8, 2) == doctest::Approx(1e9 * 1.75 / 4));
}

}  // namespace
}  // namespace dlaunch
