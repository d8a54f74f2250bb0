// FlightRecorder: writes what this rank does to its flight record (base/flight.h); this takes some
// nanoseconds for each operation. Without a file it does nothing. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/flight.h"
#include "ring/call/operation.h"
#include "ring/call/plane.h"
#include "ring/call/span_ring.h"

namespace dlaunch {

class FlightRecorder {
 public:
  // The recorder of this process, which its communicators share. It writes to `path`; if that is ""
  // or cannot be made, it writes nothing.
  static std::shared_ptr<FlightRecorder> of_process(const std::string& path,
                                                    const std::string& spans = "", int ranks = 1,
                                                    const std::string& trace = "");
  // spans, trace: the paths of the span files, likewise; ranks: number in the job.
  explicit FlightRecorder(const std::string& path, const std::string& spans = "", int ranks = 1,
                          const std::string& trace = "");

  // Pass it to end() when the operation has ended. group, world_peer: FlightRecord's.
  using Ticket = std::uint64_t;
  Ticket begin(TimePoint now, const Call& call, std::uint32_t group, int world_peer);
  Ticket begin(TimePoint now, const Message& message, int world_peer);
  void end(Ticket ticket, bool failed, SpanKind kind = SpanKind::call);

  // The rank has joined its round.
  void joined() {
    spans_.joined(steady_now());
    trace_.joined(steady_now());
  }
  // A thread of the program is blocked in the library while this exists.
  class Blocked {
   public:
    // waits: for operations in the background.
    Blocked(std::shared_ptr<FlightRecorder> recorder, bool waits)
        : recorder_(std::move(recorder)), waits_(waits), since_(steady_now()) {
      recorder_->spans_.block(since_);
      recorder_->trace_.block(since_);
    }
    ~Blocked() {
      const TimePoint now = steady_now();
      recorder_->spans_.unblock(since_, now, waits_);
      recorder_->trace_.unblock(since_, now, waits_);
    }
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

   private:
    const std::shared_ptr<FlightRecorder> recorder_;
    const bool waits_;
    const TimePoint since_;
  };

  // Adds the bytes that came over a socket from a peer (numbered among all ranks). One thread at a
  // time.
  void received(int peer, std::uint64_t bytes, Duration time);

 private:
  template <class Fill>
  Ticket write(TimePoint now, Fill fill);

  std::shared_ptr<FlightFile> file_;  // null: none
  SpanRing spans_, trace_;
  std::atomic<std::uint64_t> last_{0};
};

}  // namespace dlaunch
