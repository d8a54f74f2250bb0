#include "launcher/lead/metrics/machine_rates.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstring>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/flight_tally.h"
#include "base/interfaces.h"
#include "base/quiet_thread.h"
#include "base/small_file.h"

namespace dlaunch {
namespace {

constexpr Duration kEach = std::chrono::milliseconds(10);
constexpr std::uint64_t kLargest = 8 << 20;  // with its copy more than a core's share of the caches
constexpr int kMostCopiers = 16;

struct Copied {
  double bytes = 0, seconds = 0;
};

// Copies a buffer of that size again and again.
Copied copy_for(Duration time, char* to, const char* from, std::size_t size) {
  std::uint64_t bytes = 0;
  const TimePoint begin = steady_now();
  TimePoint now = begin;
  do {
    // A small buffer takes less time than a look at the clock.
    for (std::size_t done = 0; done < std::max<std::size_t>(size, 1 << 20); done += size) {
      std::memcpy(to, from, size);
      // The copy must not be left out.
      asm volatile("" : : "r"(to), "r"(from) : "memory");
      bytes += size;
    }
    now = steady_now();
  } while (now - begin < time);
  return {static_cast<double>(bytes), to_seconds(now - begin)};
}

double rate_of(std::uint64_t size, int copiers) {
  std::barrier start(copiers);
  std::vector<Copied> copied(static_cast<std::size_t>(copiers));
  std::vector<std::thread> threads;
  for (Copied& mine : copied) {
    auto thread = start_quiet_thread([&start, &mine, size] {
      std::vector<char> from(size, 1), to(size, 2);
      start.arrive_and_wait();
      mine = copy_for(kEach, to.data(), from.data(), size);
    });
    if (!thread) {
      start.arrive_and_drop();
      continue;
    }
    threads.push_back(std::move(*thread));
  }
  for (auto& thread : threads) thread.join();
  double sum = 0;
  for (const Copied& one : copied) sum += one.seconds > 0 ? one.bytes / one.seconds : 0;
  return threads.empty() ? 0 : sum / static_cast<double>(threads.size());
}

}  // namespace

std::vector<double> measure_copies(int copiers) {
  copiers = std::clamp(copiers, 1, kMostCopiers);
  std::vector<double> rates;
  std::uint64_t last = 0;
  for (std::size_t at = 0; at < kTallySizeClasses; ++at) {
    const bool bounded = at < std::size(kTallySizes);
    const std::uint64_t size = bounded ? std::min(kTallySizes[at], kLargest) : kLargest;
    rates.push_back(size == last ? rates.back() : rate_of(size, copiers));
    last = size;
  }
  return rates;
}

Line line_of(const std::string& address, const std::string& sys) {
  Line line;
  for (const HostAddress& one : host_addresses()) {
    if (one.address == address && !one.loopback) line.interface = one.interface;
  }
  if (line.interface.empty()) return line;
  const auto speed = read_small_file(sys + "/class/net/" + line.interface + "/speed");
  const long megabits = speed ? std::atol(speed->c_str()) : 0;
  if (megabits > 0) line.bytes_per_s = static_cast<double>(megabits) * 1e6 / 8;
  return line;
}

std::string render_json(const MachineRates& rates) {
  using nlohmann::json;
  json copies = json::object();
  for (std::size_t at = 0; at < rates.copies.size(); ++at) {
    copies[std::string(kTallySizeNames[at])] = rates.copies[at];
  }
  const json out = {{"hosts", rates.hosts},
                    {"copiers", rates.copiers},
                    {"copies_bytes_per_s", std::move(copies)},
                    {"interface", rates.interface},
                    {"line_bytes_per_s", rates.line > 0 ? json(rates.line) : json()}};
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace dlaunch
