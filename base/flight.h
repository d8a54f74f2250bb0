// The flight record: the last operations of one rank, in a file that libdlring maps and that
// outlives the process, however it ends. The launcher reads it to report what a lost rank was
// doing.
//
// A FlightFile has kFlightRecords records, with operation number i (from 1) in record i %
// kFlightRecords, counts the collectives by kind, size, time and rate (base/flight_tally.h), and
// counts what each peer has sent over sockets. Its rank writes it without
// locks: a reader accepts a record if its `number` did not change meanwhile, and a link if its two
// versions are equal. Native byte order and layout: writer and reader share one machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/flight_tally.h"

namespace dlaunch {

inline constexpr int kFlightRecords = 64;
inline constexpr int kFlightLinks = 64;  // higher ranks have none

// The path of a rank's record in a round.
std::string flight_file(const std::string& round_dir, int rank);

// In addition to the indices into the tables of base/ring_names.h.
inline constexpr std::uint8_t kFlightSend = 0x80, kFlightRecv = 0x81;
inline constexpr std::uint8_t kFlightNoOp = 0xff;

// enqueued: a GPU's stream has it, and its begin and end are not known.
enum class FlightState : std::uint8_t { running = 1, done = 2, failed = 3, enqueued = 4 };
inline constexpr FlightState kLastFlightState = FlightState::enqueued;
// The words for them, by their numbers.
inline constexpr std::string_view kFlightStateNames[] = {"", "running", "done", "failed",
                                                         "enqueued"};
// Whether it has ended: `ended` holds.
constexpr bool has_ended(FlightState state) {
  return state == FlightState::done || state == FlightState::failed;
}

struct alignas(64) FlightRecord {
  std::atomic<std::uint64_t> number{0};  // 0: empty, or being written
  std::uint64_t seq = 0;                 // for a collective: its number on its communicator
  std::uint64_t count = 0;
  std::int64_t started_ns = 0;  // of the monotonic clock
  std::int64_t ended_ns = 0;
  std::int32_t peer = -1;         // root of a collective, peer of a message; -1: none
  std::int32_t tag = 0;           // for a message
  std::uint8_t what = 0;          // index into kCollectiveNames, or kFlightSend, kFlightRecv
  std::uint8_t dtype = 0;         // index into kDtypeNames
  std::uint8_t op = kFlightNoOp;  // or index into kOpNames
  FlightState state = FlightState::running;
  std::uint32_t group = 0;       // for a collective: a hash of its group; 0: all ranks
  std::int32_t world_peer = -1;  // `peer`, as numbered among all ranks
};
static_assert(sizeof(FlightRecord) == 64);

// The data that the peer of that rank has sent in collectives of all ranks, since the round began.
struct alignas(64) FlightLink {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::int64_t> ns{0};  // from the first byte of a frame to its last
  // As check_of(). A copy in which it does not agree with the others was made during a change.
  std::atomic<std::uint64_t> check{0};
};
static_assert(sizeof(FlightLink) == 64);
// Old and new values do not agree by chance.
constexpr std::uint64_t check_of(std::uint64_t bytes, std::int64_t ns) {
  return bytes * 0xc2b2ae3d27d4eb4f + static_cast<std::uint64_t>(ns) * 0x165667b19e3779f9;
}

struct FlightFile {
  FlightRecord records[kFlightRecords];
  FlightTally tallies[kTallyKinds][kTallySizeClasses];
  FlightLink links[kFlightLinks];
};
inline constexpr std::size_t kFlightBytes = sizeof(FlightFile);

// An operation as read from a file.
struct FlightEntry {
  std::string what;  // "all_reduce #17 (count 4096, float, sum)", "send to rank 2 (tag 5, …)"
  FlightState state = FlightState::running;
  TimePoint started{}, ended{};  // ended: if it has ended
  // As in FlightRecord.
  std::uint64_t number = 0, seq = 0, count = 0;
  std::uint32_t group = 0;
  std::uint8_t kind = kFlightSend;  // FlightRecord::what
  std::uint8_t dtype = 0;
};
// The size of an element, by dl_dtype.
inline constexpr std::uint64_t kDtypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16, 1, 1};
static_assert(std::size(kDtypeBytes) == std::size(kDtypeNames));

// From the contents of a record file, oldest first; skips senseless records.
std::vector<FlightEntry> read_flight(std::string_view bytes);

// A rank's progress in a group: its last collective there.
struct FlightPosition {
  std::uint32_t group = 0;
  std::uint64_t seq = 0;
  std::uint8_t what = 0;  // index into kCollectiveNames
  bool inside = false;
  TimePoint moved{};  // when it entered or left
};
// One for each group in the record file.
std::vector<FlightPosition> read_positions(std::string_view bytes);

// A completed collective of all ranks.
struct FlightSpan {
  std::uint64_t seq = 0;
  TimePoint entered{}, left{};
};
// By seq.
std::vector<FlightSpan> read_spans(std::string_view bytes);

// The data from a peer; see FlightLink.
struct FlightReceived {
  int peer = -1;
  std::uint64_t bytes = 0;
  Duration time{};
};
// The peers that have sent data, by rank. Skips a link that is being written.
std::vector<FlightReceived> read_received(std::string_view bytes);

}  // namespace dlaunch
