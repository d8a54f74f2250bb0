// The bytes from each peer, from the recorder to a reader of the file.
#include "ring/call/flight_recorder.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <numeric>
#include <thread>

#include <doctest/doctest.h>

#include "tests/unit/sanitized.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr SpanKind kBlocking = SpanKind::call;

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
  constexpr int kGrowths = kSanitized ? 50 : 200;
  int grown = 0, wrong = 0;
  for (const TimePoint end = steady_now() + 60s; grown < kGrowths && steady_now() < end;) {
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
  CHECK(grown == kGrowths);
}

TEST_CASE(
    "spans: what lasted or came late is in the file, with the time in which the rank was blocked") {
  const TempFolder folder;
  const std::string path = spans_file(folder.path.string(), 3);
  SpanRing ring(path, 8, 1ms);
  CHECK(read_span_file(path, 0, steady_now()).joined == TimePoint{});
  const TimePoint begin(100s);
  ring.joined(begin);
  TimePoint now = begin;
  const auto call = [&](std::uint64_t seq, Duration pause, Duration time) {
    FlightRecord record;
    record.seq = seq;
    record.started_ns = (now + pause).time_since_epoch().count();
    record.ended_ns = (now + pause + time).time_since_epoch().count();
    record.state = FlightState::done;
    record.world_peer = 2;
    ring.block(now + pause);
    now += pause + time;
    ring.unblock(now);
    ring.add(record, SpanKind::call, 0);
  };
  call(1, 10us, 10us);  // short
  call(2, 10us, 2ms);   // lasts
  call(3, 5ms, 10us);   // comes late
  SpanRing::spent_in_gc(4ms);
  SpanRing::spent_on_input(2ms);
  call(4, 6ms, 10us);
  const SpanFile file = read_span_file(path, 0, now);
  REQUIRE(file.spans.size() == 3);
  CHECK(file.joined == begin);
  CHECK(file.blocked == 2ms + 30us);
  CHECK(file.least == 1ms);
  CHECK(file.spans[0].seq == 2);
  CHECK(file.spans[0].left - file.spans[0].entered == 2ms);
  CHECK(file.spans[0].peer == 2);
  CHECK(file.spans[1].seq == 3);
  CHECK(file.spans[2].gc == 4ms);
  CHECK(file.spans[2].input == 2ms);
  CHECK(read_span_file(path, file.written, now).spans.empty());

  // A block that has not ended counts up to now, and two threads count once.
  ring.block(now);
  ring.block(now + 1s);
  CHECK(read_span_file(path, 0, now + 3s).blocked == file.blocked + 3s);
  ring.unblock(now + 4s);
  ring.add_wait(now + 1s, now + 4s);
  ring.unblock(now + 5s);
  ring.add_wait(now, now + 5s);
  const SpanFile later = read_span_file(path, file.written, now + 9s);
  CHECK(later.blocked == file.blocked + 5s);
  REQUIRE(later.spans.size() == 2);
  CHECK(later.spans[0].kind == SpanKind::wait);

  for (std::uint64_t seq = 5; seq < 25; ++seq) call(seq, 2ms, 10us);
  const SpanFile full = read_span_file(path, file.written, now);
  CHECK(full.spans.size() == 8);
  CHECK(full.spans.back().seq == 24);
  CHECK(full.dropped == 14);
  CHECK_FALSE(read_span_file(folder.path.string() + "/none", 0, now).exists);
  SpanRing("", 8, 1ms).joined(now);  // no file: nothing to do
}

TEST_CASE("spans: a span that is being written is read at the next look") {
  const TempFolder folder;
  const std::string path = spans_file(folder.path.string(), 0);
  SpanRing ring(path, 4, 0ns);
  FlightRecord record;
  record.started_ns = 5, record.ended_ns = 9;
  for (record.seq = 1; record.seq <= 2; ++record.seq) ring.add(record, SpanKind::call, 0);
  std::string bytes = content(path);
  const std::size_t second = sizeof(SpanHead) + 2 * sizeof(SpanRecord);
  const std::string number = bytes.substr(second, 8);
  bytes.replace(second, 8, 8, '\0');
  const SpanFile half = read_spans_of(bytes, 0, steady_now());
  CHECK(half.spans.size() == 1);
  CHECK(half.written == 1);
  bytes.replace(second, 8, number);
  CHECK(read_spans_of(bytes, half.written, steady_now()).spans.size() == 1);
}

TEST_CASE("spans: an operation names the text that says how it was carried out") {
  const TempFolder folder;
  const std::string path = trace_file(folder.path.string(), 0);
  SpanRing ring(path, 4, 0ns, 2);
  FlightRecord record;
  record.started_ns = 5, record.ended_ns = 9;
  CHECK(ring.add_text("ring, chunks of 64 KiB") == 1);
  ring.add(record, SpanKind::call, 1);
  const std::string longest(1000, 'x');
  CHECK(ring.add_text(longest) == 2);
  CHECK(ring.add_text("there is no room for a third one") == 0);
  const SpanFile file = read_span_file(path, 0, steady_now());
  REQUIRE(file.spans.size() == 1);
  CHECK(file.spans[0].how == 1);
  CHECK(file.texts ==
        std::vector<std::string>{"ring, chunks of 64 KiB", longest.substr(0, kTextBytes - 1)});
  // Numbers that make no sense read nothing.
  std::string bytes = content(path);
  for (const std::size_t at : {offsetof(SpanHead, texts), offsetof(SpanHead, most_texts)}) {
    bytes.replace(at, 4, 4, '\xff');
  }
  CHECK(read_spans_of(bytes, 0, steady_now()).texts.size() == 2);
  CHECK(SpanRing("", 4, 0ns, 2).add_text("no file") == 0);
}

TEST_CASE("flight: collectives that end well are counted, and no others") {
  const TempFolder folder;
  const std::string path = flight_file(folder.path.string(), 0);
  FlightRecorder recorder(path);
  Call call;
  call.collective = Collective::all_gather;
  call.dtype = DL_FLOAT32;
  call.count = 1 << 20;
  for (int i = 0; i < 3; ++i)
    recorder.end(recorder.begin(steady_now() - 1s, call, 0, -1, kBlocking), false, kBlocking);
  recorder.end(recorder.begin(steady_now(), call, 0, -1, kBlocking), true, kBlocking);
  recorder.end(recorder.begin(steady_now(), Message{}, -1, kBlocking), false, kBlocking);
  const auto tallies = read_tallies(content(path));
  REQUIRE(tallies.size() == 1);
  CHECK((tallies[0].kind == 2 && tallies[0].size == 2 && tallies[0].bytes == 3ULL << 22));
  CHECK(tallies[0].times[9] == 3);  // up to 1.07 s
  CHECK(tallies[0].rates[1] == 3);  // up to 4 MiB/s
}

TEST_CASE("flight: threads that end calls at the same time lose no count") {
  const TempFolder folder;
  const std::string path = flight_file(folder.path.string(), 0);
  const std::string spans = spans_file(folder.path.string(), 0);
  FlightRecorder recorder(path, spans);
  constexpr int kCalls = 20000;
  const auto run = [&](SpanKind kind) {
    Call call;
    call.collective = Collective::all_reduce;
    for (int i = 0; i < kCalls; ++i) {
      recorder.end(recorder.begin(steady_now(), call, 0, -1, kind), false, kind);
    }
  };
  const TimePoint begin = steady_now();
  std::thread other([&] { run(SpanKind::background); });
  run(kBlocking);
  other.join();
  const TimePoint end = steady_now();
  std::uint64_t count = 0;
  for (const auto& tally : read_tallies(content(path))) {
    count = std::accumulate(tally.times.begin(), tally.times.end(), count);
  }
  // The calls of one thread may overwrite the record of the other's last one.
  CHECK(count > 2 * kCalls - 2 * kFlightRecords);
  CHECK(count <= 2 * kCalls);
  const SpanFile file = read_span_file(spans, 0, end + 1h);
  CHECK(file.blocked > Duration::zero());
  CHECK(file.blocked <= end - begin);  // no block is left open
}
