// Reading flight records, whole, half written and nonsensical.
#include "base/flight.h"

#include <cstring>
#include <random>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

std::string bytes_of(const FlightRecord* records) {
  return std::string(reinterpret_cast<const char*>(records), kFlightBytes);
}

}  // namespace

TEST_CASE("a flight record is read in the order of its operations, in words") {
  FlightRecord records[kFlightRecords];
  const auto put = [&](std::uint64_t number) -> FlightRecord& {
    auto& r = records[number % kFlightRecords];
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
  const auto entries = read_flight(bytes_of(records));
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

TEST_CASE("whatever stands in the file, reading it is harmless") {
  CHECK(read_flight("").empty());
  CHECK(read_flight("short").empty());
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string garbage(random() % (2 * kFlightBytes), '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    CHECK(read_flight(garbage).size() <= kFlightRecords);
  }
}
