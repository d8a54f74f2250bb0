// FlightRecorder: writes what this rank does to its flight record (base/flight.h), some nanoseconds
// an operation. Without a file it does nothing. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/flight.h"
#include "ring/call/operation.h"
#include "ring/call/plane.h"

namespace dlaunch {

class FlightRecorder {
 public:
  // The recorder of this process, whose communicators share it: it writes to `path`, and to nothing
  // if that is "" or cannot be made.
  static std::shared_ptr<FlightRecorder> of_process(const std::string& path);
  explicit FlightRecorder(const std::string& path);

  // To be told again when the operation has ended. group: FlightRecord's.
  using Ticket = std::uint64_t;
  Ticket begin(TimePoint now, const Call& call, std::uint32_t group);
  Ticket begin(TimePoint now, const Message& message);
  void end(Ticket ticket, bool failed);

  // What has come over a socket from a peer of all ranks, in addition to what came before. One
  // thread at a time.
  void received(int peer, std::uint64_t bytes, Duration time);

 private:
  template <class Fill>
  Ticket write(TimePoint now, Fill fill);

  std::shared_ptr<FlightFile> file_;  // null: none
  std::atomic<std::uint64_t> last_{0};
};

}  // namespace dlaunch
