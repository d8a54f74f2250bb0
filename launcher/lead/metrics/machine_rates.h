// MachineRates: what the collectives of a job could reach at most on its machines, for the run
// folder (limits.json). On one host that is what its cores copy; between hosts, the speed of the
// network interface. The rates are those of the leader's host.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dlaunch {

struct MachineRates {
  int hosts = 1;
  // Of one host: bytes a second that one of so many threads copies while all do, by class of sizes
  // (kTallySizeNames). Empty: not measured.
  int copiers = 0;
  std::vector<double> copies;
  // Of several: the interface, and the bytes a second that it carries each way. 0: not known.
  std::string interface;
  double line = 0;
};

// How many threads copy: one for each rank, but not more than there are cores, and 16 at most.
// cores: as std::thread::hardware_concurrency() says; 0: not known.
int copiers_for(int ranks, unsigned cores);

// With its copy more than a core's share of the caches.
inline constexpr std::size_t kLargestCopy = 8 << 20;
// Takes 40 ms, plus the time to get the memory. Empty: there is not enough memory, or a thread is
// missing.
std::vector<double> measure_copies(int copiers, std::size_t largest = kLargestCopy);

// The interface that has this address, and its speed as the kernel knows it.
struct Line {
  std::string interface;  // "": none has it
  double bytes_per_s = 0;
};
// sys: "/sys", or a folder like it.
Line line_of(const std::string& address, const std::string& sys);

std::string render_json(const MachineRates& rates);

}  // namespace dlaunch
