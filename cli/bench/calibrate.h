// Measures what bounds the collectives on this machine, in a second or two. Each figure is the
// median of repeats.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "cli/bench/machine_limits.h"

namespace bench {

inline constexpr int kMaxCores = 1024;  // a cpu_set_t's

// Cores this process may use; {-1}, any, where the system does not say.
std::vector<int> usable_cores();

// The calling thread's place from now on. A core of -1, or one that may not be used, changes
// nothing: the figure is then that of wherever the system lets it run.
void pin(int core);

// `ranks` is how many of the cores move data at once; no more than there are, nor than 16.
Limits calibrate(const std::vector<int>& cores, int ranks);

// What bounds() uses of them, measured again: what cores move together through working sets of up
// to `largest` bytes (of 256 KiB in any case), and what passes between them. A shared machine may
// be twice as fast a second later.
void measure_again(Limits& limits, const std::vector<int>& cores, std::size_t largest);

double now_us();
double median(std::vector<double> values);

// Parts of it.
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
