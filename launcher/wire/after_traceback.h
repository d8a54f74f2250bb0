// A worker's progress after it has printed a traceback, as seen from outside. A program that has
// caught and logged an exception prints on, or its collectives get on. A program that hangs on its
// way out (MPI_Finalize(), a thread that is no daemon, a `finally:` that waits) does neither. Pure.
#pragma once

#include <optional>

#include "base/clock.h"

namespace dlaunch {

// Output so soon after the traceback may belong to it: other threads' words, a clean-up.
inline constexpr Duration kAftermath = std::chrono::seconds(2);

// After this time a worker that has shown nothing is reported, and named as the likely cause if the
// user, or a time limit, ends the job.
inline constexpr Duration kSuspicious = std::chrono::seconds(10);

struct AfterTraceback {
  TimePoint threw{};               // its last traceback began
  std::optional<TimePoint> said;   // its last write to stdout or stderr
  std::optional<TimePoint> moved;  // it last entered or left a collective of libdlring
  bool inside = false;             // it is in a collective: it waits for others

  bool has_gone_on() const {
    const TimePoint later = threw + kAftermath;
    return (said && *said > later) || (moved && *moved > later);
  }
  // It has shown nothing since, for longer than the aftermath of the traceback takes.
  bool stands(TimePoint now) const { return !inside && !has_gone_on() && now > threw + kAftermath; }
};

}  // namespace dlaunch
