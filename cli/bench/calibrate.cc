#include "cli/bench/calibrate.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "base/cpus.h"

namespace bench {
namespace {

constexpr int kRepeats = 5;
constexpr std::size_t kMaxBusy = 16;  // more cores than this do not fill memory, nor do we use more
// The first cache, the second, the last one's share, and memory.
constexpr std::size_t kWorkingSets[] = {16 << 10, kStagingSet, 4 << 20, 64 << 20};
constexpr std::size_t kBytesPerRepeat = 32 << 20;

// Tells the compiler that the stored data may be read.
void keep(const void* data) { asm volatile("" : : "r"(data) : "memory"); }

void add_one_to_each(std::vector<char>& data) {
  for (char& byte : data) ++byte;
  keep(data.data());
}

double timed(std::size_t bytes, auto pass) {
  const std::size_t passes = std::max<std::size_t>(1, kBytesPerRepeat / bytes);
  const double started = now_us();
  for (std::size_t i = 0; i < passes; ++i) pass();
  return static_cast<double>(passes * bytes) / (now_us() - started) / 1e3;
}

// Measures cores together, each during all of another's measurement: a thread may wake as late as
// a pass takes.
class Together {
 public:
  explicit Together(std::size_t cores) : cores_(cores), gate_(static_cast<std::ptrdiff_t>(cores)) {}

  double rate(std::size_t round, std::size_t bytes, auto pass) {
    gate_.arrive_and_wait();
    timed(bytes, pass);
    const double rate = timed(bytes, pass);
    measured_.fetch_add(1, std::memory_order_relaxed);
    while (measured_.load(std::memory_order_relaxed) < (round + 1) * cores_) pass();
    return rate;
  }

 private:
  const std::size_t cores_;
  std::barrier<> gate_;
  std::atomic<std::size_t> measured_{0};  // by all cores, in all rounds
};

// One core's rates.
Rates move_on_core(std::vector<char>& data, Together& together) {
  const std::size_t half = data.size() / 2;
  std::size_t round = 0;
  const auto repeat = [&](std::size_t bytes, auto pass) {
    std::vector<double> rates;
    rates.reserve(kRepeats);
    for (int i = 0; i < kRepeats; ++i) rates.push_back(together.rate(round++, bytes, pass));
    return median(rates);
  };
  Rates rates;
  // The C library's loops are written for this processor, ours would be for the oldest one. memchr
  // seeks a byte that does not occur, so that it reads everything.
  rates.read = repeat(data.size(), [&] { keep(std::memchr(data.data(), 1, data.size())); });
  rates.write = repeat(data.size(), [&] {
    std::memset(data.data(), 0, data.size());
    keep(data.data());
  });
  rates.copy = repeat(half, [&] {
    std::memcpy(data.data() + half, data.data(), half);
    keep(data.data());
  });
  rates.update = repeat(data.size(), [&] { add_one_to_each(data); });
  return rates;
}

std::vector<int> first_of(const std::vector<int>& cores, std::size_t count) {
  return {cores.begin(), cores.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<int> usable_cores() {
  const std::vector<int> cores = dlaunch::cpus_in(dlaunch::own_cpus());
  return cores.empty() ? std::vector<int>{-1} : cores;
}

void pin(int core) {
  if (core >= 0) dlaunch::run_on(dlaunch::only_cpu(core));
}

// The average rates of the cores.
Rates move_data(const std::vector<int>& cores, std::size_t working_set) {
  Together together(cores.size());
  std::vector<Rates> of(cores.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < cores.size(); ++i) {
      threads.emplace_back([&, i] {
        pin(cores[i]);
        std::vector<char> data(working_set);  // touched here: in the memory of the core's own node
        of[i] = move_on_core(data, together);
      });
    }
  }
  Rates mean;
  const auto n = static_cast<double>(cores.size());
  for (const auto& rates : of) {
    mean.read += rates.read / n;
    mean.write += rates.write / n;
    mean.copy += rates.copy / n;
    mean.update += rates.update / n;
  }
  return mean;
}

Limits calibrate(const std::vector<int>& cores, int ranks) {
  const std::size_t busy = std::min({cores.size(), static_cast<std::size_t>(ranks), kMaxBusy});
  const auto several = first_of(cores, busy);
  std::vector<Level> levels;
  for (const std::size_t bytes : kWorkingSets) {
    const Rates alone = move_data(first_of(cores, 1), bytes);
    levels.push_back({bytes, alone, busy > 1 ? move_data(several, bytes) : alone});
  }
  const Loopback tcp = tcp_loopback(cores);
  return {.cores = static_cast<int>(cores.size()),
          .busy = static_cast<int>(busy),
          .levels = levels,
          .pass_gbs = pass_gbs(cores),
          .handoff_us = line_handoff_us(cores),
          .wake_us = futex_wake_us(cores),
          .switch_us = futex_switch_us(cores[0]),
          .tcp_gbs = tcp.gbs,
          .tcp_rtt_us = tcp.rtt_us};
}

void measure_again(Limits& limits, const std::vector<int>& cores, std::size_t largest) {
  const auto several = first_of(cores, static_cast<std::size_t>(limits.busy));
  for (auto& level : limits.levels) {
    if (level.bytes <= std::max(largest, kStagingSet)) {
      level.together = move_data(several, level.bytes);
    }
  }
  limits.pass_gbs = pass_gbs(cores);
  limits.handoff_us = line_handoff_us(cores);
  limits.switch_us = futex_switch_us(cores[0]);
}

}  // namespace bench
