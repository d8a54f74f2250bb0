// The span file: the operations of one rank that lasted, or that came late, in a ring that
// libdlring maps and that outlives the process, however it ends. The launcher's ledger of goodput
// reads it. With --trace a second, larger ring has all operations.
//
// The head counts the time in which a thread of the program itself was blocked in libdlring. The
// ring's record i % capacity has span number i (from 1). The rank writes it without locks: a reader
// accepts a record if its `number` did not change meanwhile. Native byte order and layout: writer
// and reader share one machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

inline constexpr std::uint32_t kLedgerSpans = 8192;

inline constexpr std::uint32_t kTraceSpans = 16384;

// A file of all operations also has texts, behind its records: how the library carries out a kind
// of call, as dl_explain() says it.
inline constexpr std::uint32_t kTraceTexts = 256;
inline constexpr std::size_t kTextBytes = 256;  // each with its final zero

// The paths of a rank's span files in a round: for the ledger, and with --trace that of all
// operations.
std::string spans_file(const std::string& round_dir, int rank);
std::string trace_file(const std::string& round_dir, int rank);

// Waits shorter than this are not told apart from the transfer of data. It grows with the job, so
// that all ranks together report no more than 100,000 spans a second.
constexpr Duration least_span(int ranks) {
  return std::max<Duration>(std::chrono::microseconds(200), ranks * std::chrono::microseconds(10));
}

// How often hosts send the spans of a job of so many ranks to its leader.
constexpr Duration spans_interval(int ranks) {
  return std::max<Duration>(std::chrono::seconds(1), ranks * std::chrono::milliseconds(4));
}

enum class SpanKind : std::uint8_t {
  call = 1,        // the program's own thread was in the operation
  background = 2,  // another thread, or a GPU's stream, carried it out
  wait = 3,        // no operation: the program's thread waited for operations in the background
};

struct alignas(64) SpanRecord {
  std::atomic<std::uint64_t> number{0};  // 0: empty, or being written
  std::uint64_t seq = 0;                 // as FlightRecord's, and so are the members to `op`
  std::uint64_t count = 0;
  std::int64_t entered_ns = 0, left_ns = 0;  // of the monotonic clock
  std::int32_t peer = -1;
  std::uint32_t group = 0;
  std::uint8_t what = 0, dtype = 0, op = 0;
  SpanKind kind = SpanKind::call;
  // Since the rank's last span: in the garbage collector, and waiting for input.
  std::uint32_t gc_us = 0, input_us = 0;
  std::uint8_t failed = 0;
  std::uint16_t how = 0;  // the number of a text, from 1; 0: none
};
static_assert(sizeof(SpanRecord) == 64);

struct alignas(64) SpanHead {
  std::atomic<std::int64_t> joined_ns{0};   // when the rank had joined its round; 0: not yet
  std::atomic<std::int64_t> blocked_ns{0};  // without the current block
  std::atomic<std::int64_t> since_ns{0};    // of the current block, if `depth` > 0
  std::atomic<std::int32_t> depth{0};       // number of blocked threads
  std::uint32_t capacity = 0;
  std::int64_t least_ns = 0;
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint32_t> texts{0};  // number written
  std::uint32_t most_texts = 0;
};
static_assert(sizeof(SpanHead) == 64);

constexpr std::size_t span_file_bytes(std::uint32_t capacity, std::uint32_t texts = 0) {
  return sizeof(SpanHead) + capacity * sizeof(SpanRecord) + texts * kTextBytes;
}

// A span as read from a file.
struct Span {
  SpanKind kind = SpanKind::call;
  std::uint8_t what = 0;
  std::uint8_t dtype = 0, op = 0;
  bool failed = false;
  std::uint16_t how = 0;  // as SpanRecord's
  std::int32_t peer = -1;
  std::uint32_t group = 0;
  std::uint64_t seq = 0;
  std::uint64_t count = 0;
  TimePoint entered{}, left{};
  Duration gc{}, input{};
  bool operator==(const Span&) const = default;
};

struct SpanFile {
  bool exists = false;
  TimePoint joined{};  // the epoch: not yet
  Duration blocked{};  // up to `now`
  Duration least{};
  std::uint64_t written = 0;  // the number of the last span
  std::uint64_t dropped = 0;  // of those after `after`: overwritten before this look
  std::vector<std::string> texts;
  std::vector<Span> spans;  // in the order of their numbers; senseless ones are left out
};
// Reads the spans after number `after`. Never waits, whatever kind of file the worker has put
// there.
SpanFile read_span_file(const std::string& path, std::uint64_t after, TimePoint now);
// The same from a file's contents.
SpanFile read_spans_of(std::string_view bytes, std::uint64_t after, TimePoint now);

}  // namespace dlaunch
