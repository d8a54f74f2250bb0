// The bytes from each peer, from the recorder to a reader of the file.
#include "ring/call/flight_recorder.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>

#include <doctest/doctest.h>

#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("flight: the file has the sum of the bytes from each peer") {
  const TempFolder folder;
  const std::string path = flight_file(folder.path.string(), 0);
  FlightRecorder recorder(path);
  CHECK(content(path).size() == kFlightBytes);
  CHECK(read_received(content(path)).empty());
  recorder.received(2, 1000, 5us);
  recorder.received(1, 10, 0us);
  recorder.received(2, 500, 2us);
  recorder.received(kFlightLinks, 1, 1us);
  recorder.received(-1, 1, 1us);
  const auto received = read_received(content(path));
  REQUIRE(received.size() == 2);
  CHECK(received[0].peer == 1);
  CHECK(received[0].bytes == 10);
  CHECK(received[1].peer == 2);
  CHECK(received[1].bytes == 1500);
  CHECK(received[1].time == 7us);
  FlightRecorder("").received(1, 1, 1us);  // no file: nothing to do
}

TEST_CASE("flight: a reader never sees a half-written record") {
  const TempFolder folder;
  const std::string path = flight_file(folder.path.string(), 0);
  FlightRecorder recorder(path);
  std::atomic<bool> over{false};
  std::thread writer([&] {
    while (!over) recorder.received(5, 3, 7ns);
  });
  std::uint64_t last = 0;
  int grown = 0, wrong = 0;
  for (const TimePoint end = steady_now() + 60s; grown < 200 && steady_now() < end;) {
    for (const auto& received : read_received(content(path))) {
      const auto ns = static_cast<std::uint64_t>(received.time.count());
      wrong += received.peer != 5 || ns % 7 != 0 || received.bytes != ns / 7 * 3 ? 1 : 0;
      grown += received.bytes > last ? 1 : 0;
      wrong += received.bytes < last ? 1 : 0;
      last = received.bytes;
    }
  }
  over = true;
  writer.join();
  CHECK(wrong == 0);
  CHECK(grown == 200);
}

TEST_CASE("flight: collectives that end well are counted, and no others") {
  const TempFolder folder;
  const std::string path = flight_file(folder.path.string(), 0);
  FlightRecorder recorder(path);
  Call call;
  call.collective = Collective::all_gather;
  call.dtype = DL_FLOAT32;
  call.count = 1 << 20;
  for (int i = 0; i < 3; ++i) recorder.end(recorder.begin(steady_now() - 1s, call, 0), false);
  recorder.end(recorder.begin(steady_now(), call, 0), true);
  recorder.end(recorder.begin(steady_now(), Message{}), false);
  const auto tallies = read_tallies(content(path));
  REQUIRE(tallies.size() == 1);
  CHECK((tallies[0].kind == 2 && tallies[0].size == 2 && tallies[0].bytes == 3ULL << 22));
  CHECK(tallies[0].times[9] == 3);  // up to 1.07 s
  CHECK(tallies[0].rates[1] == 3);  // up to 4 MiB/s
}
