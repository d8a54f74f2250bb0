#include "rendezvous/store_core.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

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

TEST_CASE("a wait names the missing keys when its time is over") {
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

TEST_CASE("an error about many missing keys names some of them") {
  StoreCore core;
  StoreRequest many{.op = StoreOp::wait, .timeout = 1s};
  for (char key = 'a'; key < 'a' + 18; ++key) many.keys.emplace_back(1, key);
  CHECK(ask(core, 1, many).empty());
  CHECK(core.step(kStart + 1s, StoreCore::Deadline{}).at(0).reply.value ==
        "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p and 2 more");
}

TEST_CASE("a wait without a limit never times out") {
  StoreCore core;
  CHECK(ask(core, 1, {.op = StoreOp::get, .key = "k", .timeout = Duration::max()}).empty());
  CHECK_FALSE(core.deadline());
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

TEST_CASE("adding to a value that is no number, or beyond the range, is refused") {
  StoreCore core;
  ask(core, 1, {.op = StoreOp::set, .key = "k", .value = "abc"});
  CHECK(ask(core, 1, {.op = StoreOp::add, .key = "k", .delta = 1})[0].reply.status ==
        StoreStatus::not_number);
  ask(core, 1, {.op = StoreOp::add, .key = "n", .delta = INT64_MAX});
  CHECK(ask(core, 1, {.op = StoreOp::add, .key = "n", .delta = 1})[0].reply.status ==
        StoreStatus::not_number);
}

TEST_CASE("the waiting requests and keys of a connection are bounded, without effect on others") {
  StoreCore core;
  auto get = [](int i) {
    return StoreRequest{.op = StoreOp::get, .id = 1, .key = "k" + std::to_string(i), .timeout = 9s};
  };
  for (int i = 0; i < int{kMaxWaits}; ++i) REQUIRE(ask(core, 1, get(i)).empty());
  const auto refused = ask(core, 1, get(1000));
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].reply.status == StoreStatus::too_many);
  CHECK(ask(core, 2, get(1000)).empty());
  // An answer makes room for the next.
  CHECK(ask(core, 3, {.op = StoreOp::set, .key = "k5"}).size() == 2);
  CHECK(ask(core, 1, get(1000)).empty());

  StoreRequest many{.op = StoreOp::wait, .timeout = 5s};
  for (std::size_t i = 0; i < kMaxWaitKeys; ++i) many.keys.push_back("m" + std::to_string(i));
  CHECK(ask(core, 4, many).empty());
  CHECK(ask(core, 4, get(7)).at(0).reply.status == StoreStatus::too_many);
  CHECK(ask(core, 3, {.op = StoreOp::set, .key = "m3"}).size() == 1);
  CHECK(ask(core, 4, get(7)).empty());
  core.step(kStart, StoreCore::Closed{4});
  CHECK(ask(core, 4, many).empty());
}

TEST_CASE("each waiting request is answered once, as by a plain list") {
  struct Plain {
    StoreCore::Connection from;
    std::uint32_t id;
    std::set<std::string> missing;
    TimePoint until;
  };
  std::mt19937 random(11);
  StoreCore core;
  std::vector<Plain> waiting;
  std::set<std::string> there;
  TimePoint now = kStart;
  for (std::uint32_t turn = 1; turn <= 20000; ++turn) {
    std::multiset<std::pair<StoreCore::Connection, std::uint32_t>> expected, got;
    const StoreCore::Connection from = random() % 8;
    const std::string key = "k" + std::to_string(random() % 12);
    std::vector<StoreCore::Answer> answers;
    now += Duration(random() % 3);
    if (const auto what = random() % 8; what < 4) {
      StoreRequest r{.op = StoreOp::wait, .id = turn, .timeout = Duration(random() % 200)};
      for (unsigned i = 0; i < 1 + random() % 3; ++i) {
        r.keys.push_back("k" + std::to_string(random() % 12));
      }
      answers = ask(core, from, r, now);
      waiting.push_back({from, turn, {r.keys.begin(), r.keys.end()}, now + r.timeout});
      for (const auto& k : there) waiting.back().missing.erase(k);
    } else if (what < 6) {
      answers = ask(core, from, {.op = StoreOp::set, .id = turn, .key = key}, now);
      expected.emplace(from, turn);
      there.insert(key);
      for (auto& w : waiting) w.missing.erase(key);
    } else if (what == 6) {
      answers = ask(core, from, {.op = StoreOp::delete_prefix, .id = turn}, now);
      expected.emplace(from, turn);
      there.clear();
    } else {
      answers = core.step(now, StoreCore::Closed{from});
      std::erase_if(waiting, [&](const auto& w) { return w.from == from; });
    }
    std::erase_if(waiting, [&](const auto& w) {
      if (!w.missing.empty() && w.until > now) return false;
      expected.emplace(w.from, w.id);
      return true;
    });
    for (const auto& answer : answers) got.emplace(answer.to, answer.reply.id);
    REQUIRE(got == expected);
    auto first = kNever;
    for (const auto& w : waiting) first = std::min(first, w.until);
    REQUIRE(core.deadline().value_or(kNever) == first);
  }
}
