#include "launcher/lead/metrics/machine_rates.h"

#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/flight_tally.h"
#include "base/interfaces.h"
#include "base/quiet_thread.h"
#include "base/small_file.h"
#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

constexpr Duration kEach = std::chrono::milliseconds(10);
constexpr int kMostCopiers = 16;

// Memory that costs nothing until it is written.
class Buffer {
 public:
  explicit Buffer(std::size_t size) : size_(size) {
    void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) data_ = static_cast<char*>(at);
  }
  Buffer(Buffer&& other) noexcept
      : size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  char* data() const { return data_; }  // nullptr: the system has no memory to give

 private:
  std::size_t size_;
  char* data_ = nullptr;
};

struct Copier {
  Buffer from, to;
};

// Empty: there is not enough memory.
std::vector<Copier> copiers_with(std::size_t largest, int number) {
  std::vector<Copier> copiers;
  for (int i = 0; i < number; ++i) {
    copiers.push_back({Buffer(largest), Buffer(largest)});
    if (copiers.back().from.data() == nullptr || copiers.back().to.data() == nullptr) return {};
  }
  return copiers;
}

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

// The mean rate of these copiers while all of them copy. 0: one of them has no thread.
double rate_of(std::size_t size, const std::vector<Copier>& copiers) {
  std::barrier start(static_cast<std::ptrdiff_t>(copiers.size()));
  std::vector<Copied> copied(copiers.size());
  std::vector<std::thread> threads;
  threads.reserve(copiers.size());
  for (std::size_t i = 0; i < copiers.size(); ++i) {
    auto thread = start_quiet_thread([&start, &mine = copied[i], &with = copiers[i], size] {
      std::memset(with.from.data(), 1, size);
      std::memset(with.to.data(), 2, size);
      start.arrive_and_wait();
      mine = copy_for(kEach, with.to.data(), with.from.data(), size);
    });
    if (thread) {
      threads.push_back(std::move(*thread));
    } else {
      start.arrive_and_drop();
    }
  }
  for (auto& thread : threads) thread.join();
  if (threads.size() < copiers.size()) return 0;
  double sum = 0;
  for (const Copied& one : copied) sum += one.seconds > 0 ? one.bytes / one.seconds : 0;
  return sum / static_cast<double>(copiers.size());
}

}  // namespace

int copiers_for(int ranks, unsigned cores) {
  const int most = std::clamp(static_cast<int>(cores), 1, kMostCopiers);
  return std::clamp(ranks, 1, most);
}

std::vector<double> measure_copies(int copiers, std::size_t largest) {
  const std::vector<Copier> all = copiers_with(largest, copiers);
  if (all.empty()) return {};
  std::vector<double> rates;
  std::size_t last = 0;
  for (std::size_t at = 0; at < kTallySizeClasses; ++at) {
    const bool bounded = at < std::size(kTallySizes);
    const std::size_t size = bounded ? std::min<std::size_t>(kTallySizes[at], largest) : largest;
    rates.push_back(size == last ? rates.back() : rate_of(size, all));
    if (rates.back() == 0) return {};
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
  return json_text(out, 2) + "\n";
}

}  // namespace dlaunch
