// The limits of a collective on one machine, as calibrate() measures them. Plain values: the model
// of bounds.h and the tests need no machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace bench {

// Bytes that a core moves a second, in GB/s: reading, writing, copying, or updating in place.
struct Rates {
  double read = 0, write = 0, copy = 0, update = 0;
};

// The working set whose rates apply to data staged in shared memory.
inline constexpr std::size_t kStagingSet = 256 << 10;

struct Level {
  std::size_t bytes = 0;  // the working set that was read, written, or copied between its halves
  Rates alone;            // by one core
  Rates together;         // by each core while Limits::busy of them do the same
};

// Error: a figure cannot be measured here; the text says why.
struct Limits {
  int cores = 1;                       // usable ones
  int busy = 1;                        // cores that moved data together
  std::vector<Level> levels;           // by growing working set, from the first cache to memory
  dlaunch::Result<double> pass_gbs;    // a core loads what another has just stored
  dlaunch::Result<double> handoff_us;  // one core's store seen by another's load
  dlaunch::Result<double> wake_us;     // a sleeper on another core runs again
  dlaunch::Result<double> switch_us;   // a sleeper on the waker's own core runs instead of it
  dlaunch::Result<double> tcp_gbs;
  dlaunch::Result<double> tcp_rtt_us;
};

// A line of the listing. `together` is 0 if it has no meaning.
struct LimitRow {
  std::string name;
  dlaunch::Result<double> value;
  double together = 0;
  const char* unit;
  const char* bounds;  // what it is the limit of
};
std::vector<LimitRow> rows(const Limits& limits);

std::string limits_table(const Limits& limits);
std::string limits_csv(const Limits& limits);
std::string limits_json(const Limits& limits);

}  // namespace bench
