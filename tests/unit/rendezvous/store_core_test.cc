#include "rendezvous/store_core.h"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart(1s);

std::vector<StoreCore::Answer> ask(StoreCore& core, StoreCore::Connection from, StoreRequest r,
                                   TimePoint now = kStart) {
  return core.step(now, StoreCore::Asked{from, std::move(r)});
}

}  // namespace

TEST_CASE("a get waits for its key and is answered by the set that brings it") {
  StoreCore core;
  CHECK(ask(core, 1, {.op = StoreOp::get, .id = 5, .key = "k", .timeout = 10s}).empty());
  CHECK(core.deadline() == kStart + 10s);
  const auto answers = ask(core, 2, {.op = StoreOp::set, .id = 1, .key = "k", .value = "v"});
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].to == 1);
  CHECK(answers[0].reply.value == "v");
  CHECK(answers[1].to == 2);
  CHECK_FALSE(core.deadline());
}

TEST_CASE("a wait names what is missing when its time is over") {
  StoreCore core;
  ask(core, 2, {.op = StoreOp::set, .key = "b", .value = "v"});
  CHECK(
      ask(core, 1, {.op = StoreOp::wait, .id = 5, .timeout = 1s, .keys = {"a", "b", "c"}}).empty());
  CHECK(core.step(kStart + 999ms, StoreCore::Deadline{}).empty());
  const auto answers = core.step(kStart + 1s, StoreCore::Deadline{});
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].reply.status == StoreStatus::timeout);
  CHECK(answers[0].reply.value == "a, c");
}

TEST_CASE("a connection that ends takes its waiting requests along") {
  StoreCore core;
  ask(core, 1, {.op = StoreOp::get, .key = "k", .timeout = 10s});
  core.step(kStart, StoreCore::Closed{1});
  CHECK_FALSE(core.deadline());
  CHECK(ask(core, 2, {.op = StoreOp::set, .key = "k"}).size() == 1);
}

TEST_CASE("the store is bounded and overwriting does not leak") {
  StoreCore core(100);
  for (int i = 0; i < 50; ++i) {
    CHECK(ask(core, 1, {.op = StoreOp::set, .key = "k", .value = std::string(60, 'x')})[0]
              .reply.status == StoreStatus::ok);
  }
  CHECK(ask(core, 1, {.op = StoreOp::set, .key = "l", .value = std::string(60, 'x')})[0]
            .reply.status == StoreStatus::full);
  CHECK(ask(core, 1, {.op = StoreOp::delete_prefix, .key = ""})[0].reply.number == 1);
  CHECK(ask(core, 1, {.op = StoreOp::set, .key = "l", .value = std::string(60, 'x')})[0]
            .reply.status == StoreStatus::ok);
}

TEST_CASE("adding to what is no number, or over the edge, is refused") {
  StoreCore core;
  ask(core, 1, {.op = StoreOp::set, .key = "k", .value = "abc"});
  CHECK(ask(core, 1, {.op = StoreOp::add, .key = "k", .delta = 1})[0].reply.status ==
        StoreStatus::not_number);
  ask(core, 1, {.op = StoreOp::add, .key = "n", .delta = INT64_MAX});
  CHECK(ask(core, 1, {.op = StoreOp::add, .key = "n", .delta = 1})[0].reply.status ==
        StoreStatus::not_number);
}
