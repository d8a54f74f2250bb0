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

using Members = std::vector<Chaos::Member>;

Chaos made(const char* text) {
  const auto config = parse_chaos(text, "--chaos");
  REQUIRE(config);
  return Chaos(kStart, *config);
}

Members joined(const std::vector<int>& slots) {
  Members members;
  for (const int slot : slots) members.push_back({.slot = slot, .joined = true});
  return members;
}

// members: as they are at a time since the start.
template <class MembersAt>
std::vector<Done> run(Chaos& chaos, Duration time, MembersAt members) {
  std::vector<Done> done;
  for (TimePoint now = kStart; (now = chaos.deadline()) < kStart + time;) {
    for (const auto& deed : chaos.step(now, members(now - kStart))) done.push_back({now, deed});
  }
  return done;
}

std::vector<Done> run(const char* text, Duration time, const std::vector<int>& alive) {
  Chaos chaos = made(text);
  return run(chaos, time, [&](Duration) { return joined(alive); });
}

// The first deed among members that are as they were said to be, and grow older.
Duration first_deed(const char* text, Members members) {
  Chaos chaos = made(text);
  const auto done = run(chaos, 1h, [&](Duration now) {
    for (auto& member : members) member.ran = now;
    return members;
  });
  REQUIRE_FALSE(done.empty());
  return done[0].at - kStart;
}

}  // namespace

TEST_CASE("kills have the requested rate, hit all ranks, and depend on the seed") {
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

TEST_CASE("a stopped rank continues after the time, and is not stopped again before") {
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

TEST_CASE("a slowed rank is stopped for half of the time, and runs at the end") {
  const auto done = run("slow=100s:1s", 160s, {0});
  REQUIRE(done.size() == 50);
  for (std::size_t i = 0; i < done.size(); ++i) {
    CHECK(done[i].deed.signal == SIGSTOP);
    CHECK(done[i].deed.stands == 10ms);
    CHECK(done[i].at - done[0].at == i * 20ms);
  }
}

TEST_CASE("without living ranks there is no action, and dead ranks are forgotten") {
  CHECK(run("kill=1s,stop=1s,slow=1s", 20s, {}).empty());
  Chaos chaos = made("stop=1s:5s");
  CHECK(chaos.step(kStart, joined({0})).empty());
  const auto at = chaos.deadline();
  REQUIRE(chaos.step(at, joined({0})).size() == 1);
  CHECK(chaos.step(at + 5s, {}).empty());
}

TEST_CASE("malformed input is refused") {
  for (const char* text : {"kill", "kill=", "kill=0", "kill=x", "pause=3s", "stop=1s:", "seed=x",
                           "stop=1s:0", "kill=-1s"}) {
    CAPTURE(text);
    const auto config = parse_chaos(text, "--chaos");
    REQUIRE_FALSE(config);
    CHECK(config.error().what.starts_with("--chaos: "));
  }
}

TEST_CASE("no rank is killed in the first half interval of a round") {
  Chaos chaos = made("kill=2s");
  CHECK(chaos.step(kStart, joined({0, 1})).empty());
  const TimePoint due = chaos.deadline();
  chaos.new_round(kStart);
  CHECK(chaos.step(kStart, joined({0, 1})).empty());
  CHECK(chaos.deadline() == due);  // which is half an interval later, or more
  chaos.new_round(due - 1ms);
  CHECK(chaos.step(due - 1ms, joined({0, 1})).empty());
  CHECK(chaos.deadline() == due - 1ms + 1s);
  CHECK(chaos.step(due, joined({0, 1})).empty());
  CHECK(chaos.step(due - 1ms + 1s, joined({0, 1})).size() == 1);
}

TEST_CASE("no rank is harmed until all have joined, and the intervals of all kinds wait") {
  for (const char* text : {"kill=2s", "stop=2s", "slow=2s"}) {
    CAPTURE(text);
    Chaos quick = made(text);
    const auto at_once = run(quick, 100s, [](Duration) { return joined({0, 1, 2}); });
    Chaos chaos = made(text);
    const auto done = run(chaos, 160s, [](Duration now) {
      Members members = joined({0, 1, 2});
      members[1].joined = now >= 60s;
      members[1].ran = now;
      return members;
    });
    REQUIRE_FALSE(done.empty());
    CHECK(done[0].at - kStart >= 60s);
    CHECK(done[0].at - at_once[0].at == 60s);
    CHECK(done[0].deed.victim == at_once[0].deed.victim);
  }
}

TEST_CASE("a worker that starts again is spared with all others until it has joined") {
  TimePoint killed{};
  int victim = -1, deaths = 0;
  Chaos chaos = made("kill=1s");
  for (TimePoint now = kStart; (now = chaos.deadline()) < kStart + 300s;) {
    Members members = joined({0, 1});
    for (auto& member : members) {
      member.joined = member.slot != victim || now >= killed + 7s;
    }
    for (const auto& deed : chaos.step(now, members)) {
      if (deaths++ > 0) CHECK(now - killed >= 7s + 500ms);
      killed = now;
      victim = deed.victim;
      chaos.new_round(now);
    }
  }
  CHECK(deaths > 30);
}

TEST_CASE("frequent rounds do not keep the slower kinds away") {
  Chaos chaos = made("slow=20s:1s");
  int deeds = 0;
  TimePoint round = kStart;
  for (TimePoint now = kStart; (now = chaos.deadline()) < kStart + 300s;) {
    if (now >= round + 2s) chaos.new_round(round = now);
    deeds += static_cast<int>(chaos.step(now, joined({0, 1})).size());
  }
  CHECK(deeds > 100);
}

TEST_CASE("programs that never join are spared by their age and their output") {
  const Chaos::Member joins{.slot = 0, .joined = true};
  const Chaos::Member silent{.slot = 1}, speaks{.slot = 2, .has_spoken = true};
  const auto within = [](Duration found, Duration begun) {
    CHECK(found >= begun + 500ms);  // half an interval
    CHECK(found <= begun + 250ms + 1500ms);
  };
  within(first_deed("kill=1s", {joins}), 0s);
  within(first_deed("kill=1s", {speaks}), 10s);
  within(first_deed("kill=1s", {silent}), 30s);
  within(first_deed("kill=1s", {speaks, silent}), 30s);
  within(first_deed("stop=1s", {silent}), 30s);
  within(first_deed("slow=1s", {speaks}), 10s);
  // Who is together with one that has joined is expected to join.
  within(first_deed("kill=1s", {joins, speaks}), 300s);
}

TEST_CASE("a worker that is killed before it has joined gets more time, whatever its output") {
  for (const bool speaks : {false, true}) {
    Chaos chaos = made("kill=1s");
    TimePoint started = kStart;
    std::vector<Duration> lives;
    for (TimePoint now = kStart; (now = chaos.deadline()) < kStart + 1h;) {
      const Members members = {{.slot = 0, .has_spoken = speaks, .ran = now - started}};
      for (const auto& deed : chaos.step(now, members)) {
        CHECK(deed.signal == SIGKILL);
        lives.push_back(now - started);
        chaos.new_round(started = now);
      }
    }
    REQUIRE(lives.size() > 6);
    std::vector<Duration> limits = {30s, 60s, 120s, 240s, 300s, 300s};
    if (speaks) limits = {10s, 20s, 40s, 80s, 160s, 300s};
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(lives[i] >= limits[i]);
      CHECK(lives[i] <= limits[i] + 2s);
    }
  }
}

TEST_CASE("a program that writes early and joins late joins, and is harmed only then") {
  for (const Duration needs : {12s, 45s, 299s}) {
    Chaos chaos = made("kill=2s");
    TimePoint started = kStart;
    bool joined = false;
    int killed = 0;
    for (TimePoint now = kStart; killed < 3 && (now = chaos.deadline()) < kStart + 2h;) {
      joined = now - started >= needs;
      const Members members = {
          {.slot = 0, .joined = joined, .has_spoken = now > started + 1s, .ran = now - started}};
      for ([[maybe_unused]] const auto& deed : chaos.step(now, members)) {
        killed += joined ? 1 : 0;
        chaos.new_round(started = now);
      }
    }
    CHECK(killed == 3);
  }
}
