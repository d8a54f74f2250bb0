// SpanRing: writes a rank's spans and the time in which it is blocked to a span file
// (base/flight_spans.h). Without a file it does nothing. One thread at a time; another process may
// read the file meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/flight.h"
#include "base/flight_spans.h"

namespace dlaunch {

class SpanRing {
 public:
  // Writes to `path`; if that is "" or cannot be made, it writes nothing. least: as least_span();
  // zero: all operations are written. texts: the most that it takes.
  SpanRing(const std::string& path, std::uint32_t capacity, Duration least,
           std::uint32_t texts = 0);

  void joined(TimePoint now);
  // The time between them counts as blocked. Blocks of several threads may overlap.
  void block(TimePoint now);
  void unblock(TimePoint now);
  // An operation that has ended; how: the number of a text, or 0.
  void add(const FlightRecord& operation, SpanKind kind, std::uint16_t how);
  // The number of the new text, from 1. 0: no room, or no file.
  std::uint16_t add_text(std::string_view text);
  // The program has waited for operations in the background.
  void add_wait(TimePoint since, TimePoint now);
  // The program's own account of what it does outside operations.
  // Thread-safe.
  static void spent_in_gc(Duration time);
  static void spent_on_input(Duration time);

 private:
  SpanRecord& claim(std::uint64_t& number);

  std::shared_ptr<void> memory_;  // null: none
  SpanHead* head_ = nullptr;
  SpanRecord* records_ = nullptr;
  char* texts_ = nullptr;
  std::int64_t last_left_ = 0;
};

}  // namespace dlaunch
