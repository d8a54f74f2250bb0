// FlightRecorder: writes what this rank does to its flight record (base/flight.h); this takes some
// nanoseconds for each operation. Without a file it does nothing. Thread-safe.
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
  // The recorder of this process, which its communicators share. It writes to `path`; if that is ""
  // or cannot be made, it writes nothing.
  static std::shared_ptr<FlightRecorder> of_process(const std::string& path);
  explicit FlightRecorder(const std::string& path);

  // Pass it to end() when the operation has ended. group: FlightRecord's.
  using Ticket = std::uint64_t;
  Ticket begin(TimePoint now, const Call& call, std::uint32_t group);
  Ticket begin(TimePoint now, const Message& message);
  void end(Ticket ticket, bool failed);

  // Adds the bytes that came over a socket from a peer (numbered among all ranks). One thread at a
  // time.
  void received(int peer, std::uint64_t bytes, Duration time);

 private:
  template <class Fill>
  Ticket write(TimePoint now, Fill fill);

  std::shared_ptr<FlightFile> file_;  // null: none
  std::atomic<std::uint64_t> last_{0};
};

}  // namespace dlaunch
