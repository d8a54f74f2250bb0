// The timeline in Chrome's trace event format.
#include "launcher/lead/report/trace_text.h"

#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/start.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

json written(const Trace& trace) {
  std::string text;
  write_trace(trace, [&](std::string_view piece) { text += piece; });
  return json::parse(text);
}

Trace::Operation all_reduce(std::uint64_t seq, Duration entered, Duration left) {
  return {.round = 1,
          .span = {.what = 0,
                   .dtype = 8,
                   .seq = seq,
                   .count = 100,
                   .entered = kStart + entered,
                   .left = kStart + left}};
}

// Rank 1 comes 30 ms late.
Trace two_ranks() {
  Trace trace;
  trace.job_id = "j";
  trace.begun = kStart;
  trace.ended = kStart + 1s;
  trace.rounds = {{1, 2, kStart + 1ms}};
  trace.marks = {{kStart + 80ms, "commit 7", 0}, {kStart + 90ms, "node 1 lost", -1}};
  trace.ranks[0] = {.node = 0, .host = "a", .operations = {all_reduce(1, 10ms, 50ms)}};
  trace.ranks[1] = {.node = 1,
                    .host = "b\xff",
                    .clock_error = 2ms,
                    .operations = {all_reduce(1, 40ms, 50ms), all_reduce(2, 60ms, 61ms)},
                    .dropped = 5};
  return trace;
}

std::vector<json> events(const json& trace, const std::string& key, const std::string& value) {
  std::vector<json> found;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value(key, "") == value) found.push_back(event);
  }
  return found;
}

}  // namespace

TEST_CASE("trace: operations with their bytes, the time between them, rounds and marks") {
  const json trace = written(two_ranks());
  const auto operations = events(trace, "name", "all_reduce");
  REQUIRE(operations.size() == 3);
  CHECK(operations[0].at("pid") == 1);
  CHECK(operations[0].at("ts") == 10000.0);
  CHECK(operations[0].at("dur") == 40000.0);
  CHECK(operations[0].at("args").at("bytes") == 400);
  CHECK(operations[0].at("args").at("seq") == 1);
  const auto between = events(trace, "name", "compute");
  REQUIRE(between.size() == 1);
  CHECK(between[0].at("ts") == 50000.0);
  CHECK(between[0].at("dur") == 10000.0);
  REQUIRE(events(trace, "name", "round 1").size() == 1);
  CHECK(events(trace, "name", "round 1")[0].at("dur") == 999000.0);
  REQUIRE(events(trace, "ph", "i").size() == 2);
  CHECK(events(trace, "name", "commit 7")[0].at("pid") == 1);
}

TEST_CASE("trace: an operation names its algorithm if its rank has told it in that round") {
  Trace trace = two_ranks();
  trace.ranks[0].operations[0].span.how = 1;
  trace.ranks[0].texts[1] = {"ring, chunks of 64 KiB"};
  trace.ranks[1].operations[0].span.how = 2;  // its text was lost
  trace.ranks[1].texts[1] = {"direct"};
  trace.ranks[1].operations[1].span.how = 1;
  trace.ranks[1].operations[1].round = 2;
  const auto operations = events(written(trace), "name", "all_reduce");
  REQUIRE(operations.size() == 3);
  CHECK(operations[0].at("args").at("algorithm") == "ring, chunks of 64 KiB");
  CHECK_FALSE(operations[1].at("args").contains("algorithm"));
  CHECK_FALSE(operations[2].at("args").contains("algorithm"));
}

TEST_CASE("trace: an arrow leads from the late rank to each wait for it") {
  const json trace = written(two_ranks());
  const auto waits = events(trace, "name", "wait for rank 1");
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].at("pid") == 1);
  CHECK(waits[0].at("dur") == 30000.0);
  const auto begins = events(trace, "ph", "s"), ends = events(trace, "ph", "f");
  REQUIRE(begins.size() == 1);
  REQUIRE(ends.size() == 1);
  CHECK(begins[0].at("pid") == 2);
  CHECK(ends[0].at("pid") == 1);
  CHECK(begins[0].at("id") == ends[0].at("id"));
}

TEST_CASE("trace: while the links of a rank are slow, each operation ends with a wait for them") {
  Trace trace = two_ranks();
  trace.ranks[0].operations.push_back(all_reduce(2, 60ms, 100ms));
  trace.ranks[1].operations[1] = all_reduce(2, 60ms, 100ms);
  trace.slow_links = {{kStart + 55ms, {{1, 0.4}}}, {kStart + 500ms, {}}};
  for (const int rank : {0, 1}) {
    trace.ranks[rank].operations.push_back(all_reduce(3, 590ms, 600ms));
  }
  const auto waits = events(written(trace), "name", "wait for rank 1");
  REQUIRE(waits.size() == 3);
  CHECK(waits[0].at("args") == json{{"rank", 1}, {"cause", "compute"}});
  for (const int rank : {0, 1}) {
    const json& wait = waits[static_cast<std::size_t>(rank) + 1];
    CHECK(wait.at("pid") == rank + 1);
    CHECK(wait.at("ts") == 80000.0);
    CHECK(wait.at("dur") == 20000.0);  // of a step of 50 ms
    CHECK(wait.at("args") == json{{"rank", 1}, {"cause", "link"}, {"estimate", true}});
  }
  CHECK(events(written(trace), "ph", "s").size() == 2);  // no rank has an arrow to itself
}

TEST_CASE("trace: a wait for a rank that its slow links kept in an operation has the cause link") {
  Trace trace = two_ranks();
  trace.ranks[1].operations.push_front(all_reduce(0, 5ms, 35ms));
  trace.slow_links = {{kStart, {{1, 0.0}}}};
  CHECK(events(written(trace), "name", "wait for rank 1")[0].at("args").at("cause") == "link");
  trace.ranks[1].operations.front().span.left = kStart + 15ms;  // it computed from then on
  CHECK(events(written(trace), "name", "wait for rank 1")[0].at("args").at("cause") == "compute");
  trace.ranks[1].operations.front().span.left = kStart + 35ms;
  trace.slow_links.clear();
  CHECK(events(written(trace), "name", "wait for rank 1")[0].at("args").at("cause") == "compute");
}

TEST_CASE("trace: the metadata say how well the clocks are known, and what was dropped") {
  const json trace = written(two_ranks());
  const json& ranks = trace.at("otherData").at("ranks");
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[1].at("clock_error_s") == 0.002);
  CHECK(ranks[1].at("dropped_operations") == 5);
  CHECK(ranks[1].at("operations") == 2);
  CHECK(written({}).at("traceEvents").size() == 2);  // the job's own track alone
}

}  // namespace dlaunch
