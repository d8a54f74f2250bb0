// Reading flight records: whole, half-written and malformed ones.
#include "base/flight.h"

#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include "base/flight_rate.h"
#include "base/flight_spans.h"

using namespace dlaunch;

namespace {

std::string bytes_of(const FlightFile& file) {
  return std::string(reinterpret_cast<const char*>(&file), kFlightBytes);
}

}  // namespace

TEST_CASE("a flight record is read in the order of its operations, in words") {
  FlightFile file;
  const auto put = [&](std::uint64_t number) -> FlightRecord& {
    auto& r = file.records[number % kFlightRecords];
    r.number = number;
    r.seq = number + 1000;
    r.count = 4096;
    r.dtype = 8;
    r.started_ns = static_cast<std::int64_t>(number) * 1000;
    return r;
  };
  put(66).state = FlightState::done;  // in front of 64 and 65 in the file
  put(66).what = 3;
  put(66).peer = 2;
  put(64).state = FlightState::failed;
  put(64).what = kFlightSend;
  put(64).peer = 5;
  put(64).tag = 7;
  put(65).what = 4;
  put(67).op = 2;
  put(68).what = kFlightRecv;
  put(10).number = 0;  // being written
  const auto entries = read_flight(bytes_of(file));
  REQUIRE(entries.size() == 5);
  CHECK(entries[0].what == "send to rank 5 (tag 7, count 4096, float)");
  CHECK(entries[0].state == FlightState::failed);
  CHECK(entries[1].what == "barrier #1065");
  CHECK(entries[2].what == "broadcast #1066 (count 4096, float, root 2)");
  CHECK(entries[3].what == "all_reduce #1067 (count 4096, float, max)");
  CHECK(entries[3].state == FlightState::running);
  CHECK(entries[3].started == TimePoint(std::chrono::microseconds(67)));
  CHECK(entries[4].what == "recv from any rank (tag 0, count 4096, float)");
}

TEST_CASE("bytes of a peer are read unless they are being written") {
  FlightFile file;
  const auto put = [&](int peer, std::uint64_t bytes, std::int64_t ns) {
    auto& link = file.links[peer];
    link.bytes = bytes;
    link.ns = ns;
    link.check = check_of(bytes, ns);
  };
  put(3, 1003, 5000);
  put(5, 1005, 5000);
  file.links[5].bytes = 2010;  // the first of the two, and the check is that of before
  put(6, 1006, 5000);
  file.links[6].ns = 10000;
  put(63, 1063, 5000);
  put(7, 0, 5000);
  put(8, 1008, -1);
  const auto received = read_received(bytes_of(file));
  REQUIRE(received.size() == 2);
  CHECK(received[0].peer == 3);
  CHECK(received[0].bytes == 1003);
  CHECK(received[0].time == std::chrono::microseconds(5));
  CHECK(received[1].peer == 63);
  // As an older version of the library writes it, and one that is cut off.
  CHECK(read_received(bytes_of(file).substr(0, sizeof file.records)).empty());
  CHECK(read_received(bytes_of(file).substr(0, kFlightBytes - 1)).size() == 1);
  CHECK(read_flight(bytes_of(file)).empty());
}

TEST_CASE("no rank was blocked for longer than its machine runs, whatever its file says") {
  SpanHead head;
  head.capacity = 1;
  head.blocked_ns = INT64_MAX;
  head.depth = 1;
  head.since_ns = 1;
  const std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  const SpanFile file = read_spans_of(bytes, 0, TimePoint(std::chrono::seconds(10)));
  CHECK(file.exists);
  CHECK(file.blocked > std::chrono::seconds(10));
  CHECK(file.blocked <= std::chrono::seconds(20));
}

TEST_CASE("the largest number of a span is the last one, too") {
  struct {
    SpanHead head;
    SpanRecord span;
  } file;
  file.head.capacity = 1;
  file.head.written = file.span.number = UINT64_MAX;
  file.span.dtype = 8;
  const std::string bytes(reinterpret_cast<const char*>(&file), sizeof file);
  CHECK(read_spans_of(bytes, 0, TimePoint()).spans.size() == 1);
  CHECK(read_spans_of(bytes, UINT64_MAX, TimePoint()).spans.empty());
}

TEST_CASE("a reader survives any content of the file") {
  CHECK(read_flight("").empty());
  CHECK(read_flight("short").empty());
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string garbage(random() % (2 * kFlightBytes), '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    CHECK(read_flight(garbage).size() <= kFlightRecords);
    CHECK(read_received(garbage).size() <= kFlightLinks);
  }
}

TEST_CASE("the rate of a rank: over the last seconds, or since the oldest known operation") {
  using namespace std::chrono_literals;
  FlightFile file;
  const auto put = [&](std::uint64_t number, std::chrono::nanoseconds at) {
    auto& r = file.records[number % kFlightRecords];
    r.number = number;
    r.seq = number;
    r.count = 100;
    r.dtype = 8;  // of 4 bytes
    r.state = FlightState::done;
    r.started_ns = at.count();
  };
  const TimePoint now(1000s);
  CHECK(read_rate(bytes_of(file), now).operations == 0);
  put(1, 900s);
  CHECK(read_rate(bytes_of(file), now).operations == 0);
  put(2, 997s);
  put(3, 999s);
  auto rate = read_rate(bytes_of(file), now);
  CHECK(rate.operations == 2);
  CHECK(rate.bytes == 800);
  CHECK(rate.over == 5s);
  file.records[1].number = 0;  // being written
  CHECK(read_rate(bytes_of(file), now).over == 3s);
  for (std::uint64_t i = 0; i < kFlightRecords; ++i) put(1000 + i, 999s + i * 1ms);
  rate = read_rate(bytes_of(file), now);
  CHECK(rate.operations == kFlightRecords - 1);
  CHECK(rate.over == 1s);
  CHECK(read_rate(bytes_of(file), TimePoint(999s + 63ms)).over == 63ms);
}

TEST_CASE("a record with times before the clock began is refused") {
  FlightFile file;
  auto& record = file.records[1];
  record.number = record.seq = 1;
  record.dtype = 8;
  record.state = FlightState::done;
  CHECK(read_spans(bytes_of(file)).size() == 1);
  record.started_ns = INT64_MIN;
  CHECK(read_spans(bytes_of(file)).empty());
  CHECK(read_rate(bytes_of(file), TimePoint(std::chrono::seconds(1))).operations == 0);
  record.started_ns = 0;
  record.ended_ns = -1;
  CHECK(read_flight(bytes_of(file)).empty());
}

TEST_CASE("tallies: collectives by kind, size, time and rate") {
  FlightFile file;
  CHECK(read_tallies(bytes_of(file)).empty());
  add_to_tally(file.tallies[0], 4096, 4096);         // 1 GB/s
  add_to_tally(file.tallies[0], 4096, 4097);         // the next class of times
  add_to_tally(file.tallies[0], 4097, 100);          // the next class of sizes
  add_to_tally(file.tallies[8], UINT64_MAX, 0);      // the last classes, and no division by 0
  add_to_tally(file.tallies[4], 0, 40'000'000'000);  // a barrier has no rate
  const auto tallies = read_tallies(bytes_of(file));
  REQUIRE(tallies.size() == 4);
  CHECK((tallies[0].kind == 0 && tallies[0].size == 0));
  CHECK((tallies[0].times[0] == 1 && tallies[0].times[1] == 1 && tallies[0].times[2] == 0));
  CHECK(tallies[0].rates[5] == 2);  // up to 1 GiB/s
  CHECK((tallies[0].ns == 8193 && tallies[0].bytes == 8192));
  CHECK((tallies[1].kind == 0 && tallies[1].size == 1 && tallies[1].rates[8] == 1));
  CHECK((tallies[2].kind == 4 && tallies[2].size == 0 && tallies[2].times.back() == 1));
  CHECK(tallies[2].rates == std::vector<std::uint64_t>(kTallyRates));
  CHECK((tallies[3].kind == 8 && tallies[3].size == 4 && tallies[3].rates.back() == 1));
  // A file that was cut short.
  CHECK(read_tallies(bytes_of(file).substr(0, sizeof file.records + 2 * sizeof(FlightTally)))
            .size() == 2);
}
