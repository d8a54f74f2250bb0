// What a worker did after it had printed a traceback, as far as that shows from outside. A program
// that has caught and logged an exception prints on, or its collectives get on. One that hangs on
// its way out (MPI_Finalize(), a thread that is no daemon, a `finally:` that waits) does neither.
// Pure.
#pragma once

#include <optional>

#include "base/clock.h"

namespace dlaunch {

// What comes so soon after the traceback may belong to it: other threads' words, a clean-up.
inline constexpr Duration kAftermath = std::chrono::seconds(2);

// So long after it a worker that has shown nothing is told of, and named as the likely cause of
// what the user, or a time limit, ends.
inline constexpr Duration kSuspicious = std::chrono::seconds(10);

struct AfterTraceback {
  TimePoint threw{};               // its last traceback began
  std::optional<TimePoint> said;   // it wrote last to stdout or stderr
  std::optional<TimePoint> moved;  // it entered or left a collective of libdlring last
  bool inside = false;             // of one: it waits for others

  bool has_gone_on() const {
    const TimePoint later = threw + kAftermath;
    return (said && *said > later) || (moved && *moved > later);
  }
  // It has shown nothing since, for longer than what belongs to the traceback takes.
  bool stands(TimePoint now) const { return !inside && !has_gone_on() && now > threw + kAftermath; }
};

}  // namespace dlaunch
