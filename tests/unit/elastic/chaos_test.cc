#include "elastic/chaos.h"

#include <signal.h>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

struct Done {
  TimePoint at;
  Chaos::Deed deed;
};

std::vector<Done> run(const char* text, Duration time, const std::vector<int>& alive) {
  const auto config = parse_chaos(text, "--chaos");
  REQUIRE(config);
  Chaos chaos(kStart, *config);
  std::vector<Done> done;
  for (TimePoint now = kStart; (now = chaos.deadline()) < kStart + time;) {
    for (const auto& deed : chaos.step(now, alive)) done.push_back({now, deed});
  }
  return done;
}

}  // namespace

TEST_CASE("kills come about as often as was said, to everybody, the same with the same seed") {
  const auto done = run("kill=2s,seed=5", 1000s, {0, 1, 2, 3});
  CHECK(done.size() > 450);
  CHECK(done.size() < 550);
  int victims[4] = {};
  for (const auto& one : done) {
    CHECK(one.deed.signal == SIGKILL);
    ++victims[one.deed.victim];
  }
  for (const int count : victims) CHECK(count > 50);
  const auto again = run("kill=2s,seed=5", 1000s, {0, 1, 2, 3});
  REQUIRE(again.size() == done.size());
  for (std::size_t i = 0; i < done.size(); ++i) {
    CHECK(again[i].at == done[i].at);
    CHECK(again[i].deed.victim == done[i].deed.victim);
  }
  CHECK(run("kill=2s,seed=6", 100s, {0, 1})[0].at != run("kill=2s,seed=7", 100s, {0, 1})[0].at);
}

TEST_CASE("whoever is stopped goes on after the time, and is not stopped again before") {
  const auto done = run("stop=10s:500ms", 60s, {4});
  CHECK(done.size() >= 3);
  for (const auto& one : done) {
    CHECK(one.deed.signal == SIGSTOP);
    CHECK(one.deed.stands == 500ms);
  }
  const auto often = run("stop=1s:4s", 60s, {4});
  REQUIRE(often.size() >= 3);
  for (std::size_t i = 1; i < often.size(); ++i) CHECK(often[i].at - often[i - 1].at >= 4s);
}

TEST_CASE("whoever is slow stands half of the time, and is left running") {
  const auto done = run("slow=100s:1s", 160s, {0});
  REQUIRE(done.size() == 50);
  for (std::size_t i = 0; i < done.size(); ++i) {
    CHECK(done[i].deed.signal == SIGSTOP);
    CHECK(done[i].deed.stands == 10ms);
    CHECK(done[i].at - done[0].at == i * 20ms);
  }
}

TEST_CASE("where nobody lives nothing is done, and the dead are forgotten") {
  CHECK(run("kill=1s,stop=1s,slow=1s", 20s, {}).empty());
  const auto config = parse_chaos("stop=1s:5s", "--chaos");
  Chaos chaos(kStart, *config);
  const auto at = chaos.deadline();
  REQUIRE(chaos.step(at, {0}).size() == 1);
  CHECK(chaos.step(at + 5s, {}).empty());
}

TEST_CASE("what makes no sense is refused") {
  for (const char* text : {"kill", "kill=", "kill=0", "kill=x", "pause=3s", "stop=1s:", "seed=x",
                           "stop=1s:0", "kill=-1s"}) {
    CAPTURE(text);
    const auto config = parse_chaos(text, "--chaos");
    REQUIRE_FALSE(config);
    CHECK(config.error().what.starts_with("--chaos: "));
  }
}

TEST_CASE("nobody is killed in the first half interval of a round") {
  const auto config = parse_chaos("kill=2s", "--chaos");
  REQUIRE(config);
  Chaos chaos(kStart, *config);
  const TimePoint due = chaos.deadline();
  chaos.new_round(kStart);  // at least as late in any case
  CHECK(chaos.deadline() == due);
  chaos.new_round(due - 1ms);
  CHECK(chaos.deadline() == due - 1ms + 1s);
  CHECK(chaos.step(due, {0, 1}).empty());
  CHECK(chaos.step(due + 1s, {0, 1}).size() == 1);
}
