// FlightRecorder: writes what this rank does to its flight record (base/flight.h); this takes some
// tens of nanoseconds for each operation. Without a file it does nothing. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
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

  // Pass it to end() when the operation has ended, with the same kind. group, world_peer:
  // FlightRecord's. kind `call`: a thread of the program is blocked in the library until end().
  using Ticket = std::uint64_t;
  Ticket begin(TimePoint now, const Call& call, std::uint32_t group, int world_peer, SpanKind kind);
  Ticket begin(TimePoint now, const Message& message, int world_peer, SpanKind kind);
  // how: what explain() gave.
  void end(Ticket ticket, bool failed, SpanKind kind, std::uint16_t how = 0);
  // With a trace: a number for the text, which the trace keeps; 0: it has no room for more.
  std::uint16_t explain(std::string_view text);
  bool traces() const { return traces_; }

  // The rank has joined its round.
  void joined();
  // A thread of the program waits for operations in the background while this exists.
  class Blocked {
   public:
    explicit Blocked(std::shared_ptr<FlightRecorder> recorder);
    ~Blocked();
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;

   private:
    const std::shared_ptr<FlightRecorder> recorder_;
    const TimePoint since_;
  };

  // Adds the bytes that came over a socket from a peer (numbered among all ranks). One thread at a
  // time.
  void received(int peer, std::uint64_t bytes, Duration time);

 private:
  template <class Fill>
  Ticket write(TimePoint now, SpanKind kind, Fill fill);

  std::shared_ptr<FlightFile> file_;  // null: none
  // Held for some nanoseconds by the thread that writes a record, the tallies, spans_ or trace_.
  // One exchange costs less than an atomic addition to each number there.
  class Turn;
  std::atomic_flag busy_;
  SpanRing spans_, trace_;
  const bool traces_;
  std::atomic<std::uint64_t> last_{0};
};

}  // namespace dlaunch
