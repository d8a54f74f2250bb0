#include "launcher/step_digest.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Records = std::map<int, StepDigest::Record>;

// A rank that enters collective i of every 10 ms by `late`, and leaves all of them with the others.
StepDigest::Record spans(std::uint64_t first, std::uint64_t last, Duration late) {
  StepDigest::Record out;
  for (auto seq = first; seq <= last; ++seq) {
    const TimePoint all_there = kStart + 10ms * seq + 4ms;
    out.spans.push_back({seq, kStart + 10ms * seq + late, all_there + 1ms});
  }
  return out;
}

// Two ranks, of which each has so much from the other after `calls` collectives.
Records linked(std::uint64_t calls, const FlightReceived& by_0, const FlightReceived& by_1) {
  Records records{{0, spans(calls > 60 ? calls - 60 : 1, calls, 0ms)},
                  {1, spans(calls > 60 ? calls - 60 : 1, calls, 0ms)}};
  records[0].received = {by_0};
  records[1].received = {by_1};
  return records;
}

}  // namespace

TEST_CASE("times of each rank are means over the collectives that all have done") {
  StepDigest digest;
  const auto step = digest.add({{0, spans(1, 20, 0ms)}, {1, spans(1, 18, 4ms)}});
  REQUIRE(step);
  CHECK(step->steps == 17);
  REQUIRE(step->ranks.size() == 2);
  CHECK(step->ranks[0].late == doctest::Approx(0));
  CHECK(step->ranks[1].late == doctest::Approx(0.004));
  CHECK(step->ranks[0].in_op == doctest::Approx(0.005));
  CHECK(step->ranks[1].in_op == doctest::Approx(0.001));
  CHECK(step->ranks[0].step == doctest::Approx(0.010));
}

TEST_CASE("what was looked at is not looked at again, and what is missing is not guessed") {
  StepDigest digest;
  REQUIRE(digest.add({{0, spans(1, 20, 0ms)}, {1, spans(1, 20, 0ms)}}));
  CHECK_FALSE(digest.add({{0, spans(1, 20, 0ms)}, {1, spans(1, 20, 0ms)}}));
  const auto more = digest.add({{0, spans(10, 40, 0ms)}, {1, spans(10, 30, 0ms)}});
  REQUIRE(more);
  CHECK(more->steps == 10);
  // The record of a rank has moved on further than those of the others.
  CHECK_FALSE(digest.add({{0, spans(100, 160, 0ms)}, {1, spans(31, 90, 0ms)}}));
  CHECK_FALSE(digest.add({{0, spans(31, 90, 0ms)}, {1, {}}}));
  auto hole = spans(100, 140, 0ms);
  hole.spans.erase(hole.spans.begin() + 20);
  CHECK_FALSE(digest.add({{0, hole}, {1, spans(100, 140, 0ms)}}));
}

TEST_CASE("a new round begins at the first collective") {
  StepDigest digest;
  REQUIRE(digest.add({{0, spans(1, 50, 0ms)}}));
  CHECK_FALSE(digest.add({{0, spans(1, 9, 0ms)}}));
  digest.reset();
  CHECK(digest.add({{0, spans(1, 9, 0ms)}}));
}

TEST_CASE("what came over a link between two looks is told for one collective") {
  StepDigest digest;
  const auto first = digest.add(linked(50, {1, 50'000'000, 5ms}, {0, 50'000'000, 5ms}));
  REQUIRE(first);
  CHECK(first->links.empty());  // there is nothing yet to compare with
  // 200 collectives later, of which the records hold 61.
  const auto step = digest.add(linked(250, {1, 250'000'000, 45ms}, {0, 70'000'000, 405ms}));
  REQUIRE(step);
  REQUIRE(step->links.size() == 2);
  CHECK(step->links[0].from == 1);
  CHECK(step->links[0].to == 0);
  CHECK(step->links[0].bytes == doctest::Approx(1e6));
  CHECK(step->links[0].seconds == doctest::Approx(0.0002));
  CHECK(step->links[1].from == 0);
  CHECK(step->links[1].to == 1);
  CHECK(step->links[1].bytes == doctest::Approx(1e5));
  CHECK(step->links[1].seconds == doctest::Approx(0.002));
  CHECK(step->links[0].kind == step->links[1].kind);
}

TEST_CASE("a link over which nothing came is left out, and nothing is lost of one not seen") {
  StepDigest digest;
  REQUIRE(digest.add(linked(50, {1, 1000, 1ms}, {0, 1000, 1ms})));
  Records torn = linked(60, {1, 1000, 1ms}, {0, 2000, 2ms});
  torn[1].received.clear();
  const auto without = digest.add(torn);
  REQUIRE(without);
  CHECK(without->links.empty());
  const auto step = digest.add(linked(100, {1, 1000, 1ms}, {0, 51'000, 26ms}));
  REQUIRE(step);
  REQUIRE(step->links.size() == 1);
  CHECK(step->links[0].bytes == doctest::Approx(1000));
  CHECK(step->links[0].seconds == doctest::Approx(0.0005));
}

TEST_CASE("no link is told to be faster than memory") {
  StepDigest digest;
  REQUIRE(digest.add(linked(50, {1, 1000, 0ms}, {0, 1000, 0ms})));
  const auto step = digest.add(linked(60, {1, 100'001'000, 0ms}, {0, 100'001'000, 1ms}));
  REQUIRE(step);
  for (const LinkTimes& link : step->links) CHECK(link.seconds == doctest::Approx(0.001));
}

TEST_CASE("a new round has no links to compare with") {
  StepDigest digest;
  REQUIRE(digest.add(linked(50, {1, 1000, 1ms}, {0, 1000, 1ms})));
  digest.reset();
  const auto step = digest.add(linked(60, {1, 2000, 2ms}, {0, 2000, 2ms}));
  REQUIRE(step);
  CHECK(step->links.empty());
}
