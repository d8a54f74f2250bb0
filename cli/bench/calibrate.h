// Measures the machine's limits for the collectives, in a second or two. Each figure is the median
// of repeats.
#pragma once

#include <cstddef>
#include <vector>

#include "base/cpus.h"
#include "base/result.h"
#include "cli/bench/machine_limits.h"

namespace bench {

inline constexpr int kMaxCores = 8 * dlaunch::kMostCpuBytes;

// Cores that this process may use; {-1}, any, if the system does not say.
std::vector<int> usable_cores();

// Moves the calling thread to the core. A core of -1, or one that may not be used, changes
// nothing: the figure then is for the system's choice.
void pin(int core);

// `ranks`: how many cores move data at once; limited to the cores there are, and to 16.
Limits calibrate(const std::vector<int>& cores, int ranks);

// Measures the limits for bounds() again: what cores move together through working sets of up to
// `largest` bytes (of 256 KiB in any case), and what passes between them. A shared machine may be
// twice as fast a second later.
void measure_again(Limits& limits, const std::vector<int>& cores, std::size_t largest);

double now_us();
double median(std::vector<double> values);

// Parts of calibrate().
Rates move_data(const std::vector<int>& cores, std::size_t working_set);
dlaunch::Result<double> line_handoff_us(const std::vector<int>& cores);
dlaunch::Result<double> pass_gbs(const std::vector<int>& cores);
dlaunch::Result<double> futex_wake_us(const std::vector<int>& cores);
double futex_switch_us(int core);
struct Loopback {
  dlaunch::Result<double> gbs, rtt_us;
};
Loopback tcp_loopback(const std::vector<int>& cores);

}  // namespace bench
