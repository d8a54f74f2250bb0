#include "launcher/step_digest.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// A rank that enters collective i of every 10 ms by `late`, and leaves all of them with the others.
std::vector<FlightSpan> spans(std::uint64_t first, std::uint64_t last, Duration late) {
  std::vector<FlightSpan> out;
  for (auto seq = first; seq <= last; ++seq) {
    const TimePoint all_there = kStart + 10ms * seq + 4ms;
    out.push_back({seq, kStart + 10ms * seq + late, all_there + 1ms});
  }
  return out;
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
  hole.erase(hole.begin() + 20);
  CHECK_FALSE(digest.add({{0, hole}, {1, spans(100, 140, 0ms)}}));
}

TEST_CASE("a new round begins at the first collective") {
  StepDigest digest;
  REQUIRE(digest.add({{0, spans(1, 50, 0ms)}}));
  CHECK_FALSE(digest.add({{0, spans(1, 9, 0ms)}}));
  digest.reset();
  CHECK(digest.add({{0, spans(1, 9, 0ms)}}));
}
