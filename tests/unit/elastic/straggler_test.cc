#include "elastic/straggler.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Log = std::vector<std::string>;

// Ranks with steps of 0.2 s, half of it in the collective, reported in digests of 10 steps.
// What the judge does is written down.
class StragglerWorld {
 public:
  explicit StragglerWorld(StragglerMode mode, StragglerJudge::NewRound first = kRound)
      : StragglerWorld(StragglerJudgeConfig{.mode = mode, .detection = {}}, first) {}
  StragglerWorld(StragglerJudgeConfig config, StragglerJudge::NewRound first)
      : judge(config), round(first), own(static_cast<std::size_t>(first.ranks), 0.1) {
    new_round();
  }

  void new_round() { feed(round); }
  void run(int windows) {
    for (int i = 0; i < windows * 5; ++i) {  // of 5 digests: 10 s and more
      now += 2500ms;
      feed(digest());
    }
  }
  void confirm() { run(5); }  // two windows of warm-up, three in a row
  void feed(const StragglerJudge::Event& event) {
    for (const auto& action : judge.step(now, event)) log.push_back(in_words(action));
  }
  Log take_log() { return std::exchange(log, {}); }

  static constexpr StragglerJudge::NewRound kRound{
      .ranks = 4, .nodes = 4, .min_ranks = 2, .spares = 1};
  StragglerJudge judge;
  StragglerJudge::NewRound round;
  std::vector<double> own;
  std::vector<LinkTimes> links;
  TimePoint now{1000s};

 private:
  StepTimes digest() const {
    StepTimes step{.steps = 10, .ranks = {}, .links = links};
    const double last = *std::max_element(own.begin(), own.end());
    for (const double time : own) {
      step.ranks.push_back({.late = time, .in_op = last + 0.1 - time, .step = last + 0.1});
    }
    return step;
  }
  static std::string in_words(const StragglerJudge::Action& action) {
    if (const auto* warn = std::get_if<StragglerJudge::Warn>(&action)) {
      return fmt::format("warn {}", warn->slowness.rank);
    }
    if (const auto* clear = std::get_if<StragglerJudge::Clear>(&action)) {
      return fmt::format("clear {}", clear->slowness.rank);
    }
    if (const auto* restart = std::get_if<StragglerJudge::Restart>(&action)) {
      return fmt::format("restart {}", restart->rank);
    }
    if (const auto* evict = std::get_if<StragglerJudge::Evict>(&action)) {
      return fmt::format("evict {}", evict->rank);
    }
    const auto& refrain = std::get<StragglerJudge::Refrain>(action);
    return fmt::format("refrain {}: {}", refrain.rank, refrain.why);
  }

  Log log;
};

// Rank 2 is slow, was restarted, and is as slow as before.
StragglerWorld restarted_in_vain(StragglerMode mode,
                                 StragglerJudge::NewRound round = StragglerWorld::kRound) {
  StragglerWorld world(mode, round);
  world.own[2] = 0.2;
  world.confirm();
  CHECK(world.take_log() == Log{"warn 2", "restart 2"});
  world.new_round();
  return world;
}

}  // namespace

TEST_CASE("off: no warning") {
  StragglerWorld world(StragglerMode::off);
  world.own[2] = 0.5;
  world.run(20);
  CHECK(world.take_log() == Log{});
}

TEST_CASE("warn: once, and once when it is over") {
  StragglerWorld world(StragglerMode::warn);
  world.own[2] = 0.2;
  world.run(20);
  world.own[2] = 0.1;
  world.run(20);
  CHECK(world.take_log() == Log{"warn 2", "clear 2"});
}

TEST_CASE("restart: the slow rank, and no more once it helped") {
  StragglerWorld world(StragglerMode::restart);
  world.own[2] = 0.2;
  world.confirm();
  CHECK(world.take_log() == Log{"warn 2", "restart 2"});
  world.own[2] = 0.1;
  world.new_round();
  world.run(20);
  CHECK(world.take_log() == Log{});
  world.own[1] = 0.2;  // another one, later
  world.run(60);
  CHECK(world.take_log() == Log{"warn 1", "restart 1"});
}

TEST_CASE("the slow rank without which most is gained comes first") {
  StragglerWorld world(StragglerMode::restart);
  world.own = {0.1, 0.14, 0.2, 0.14, 0.1, 0.1};
  world.round.ranks = 6;
  world.new_round();
  world.confirm();
  CHECK(world.take_log() == Log{"warn 1", "warn 2", "warn 3", "restart 2"});
}

TEST_CASE("two equally slow ranks: neither alone is worth a restart") {
  StragglerWorld world(StragglerMode::evict, {.ranks = 6, .nodes = 6, .min_ranks = 2, .spares = 2});
  world.own[1] = world.own[2] = 0.2;
  world.run(20);
  CHECK(world.take_log() == Log{"warn 1", "warn 2"});
}

TEST_CASE("with two ranks there is no action") {
  StragglerWorld world(StragglerMode::evict, {.ranks = 2, .nodes = 2, .min_ranks = 1, .spares = 1});
  world.own[1] = 0.2;
  world.run(20);
  CHECK(world.take_log() == Log{"warn 1"});
}

TEST_CASE("links are only warned of") {
  StragglerWorld world(StragglerMode::evict);
  for (int from = 0; from < 4; ++from) {
    world.links.push_back({.from = from,
                           .to = (from + 1) % 4,
                           .kind = 0,
                           .bytes = 1e6,
                           .seconds = from == 3 ? 0.1 : 0.01});
  }
  world.run(20);
  CHECK(world.take_log() == Log{"warn 3"});
}

TEST_CASE("a recovery that costs more than a third of the gain is not worth it") {
  StragglerWorld world(StragglerMode::restart);
  world.feed(StragglerJudge::Recovered{401s});  // a third of an hour would be gained
  world.own[2] = 0.2;
  world.run(20);
  CHECK(world.take_log() == Log{"warn 2"});
  world.feed(StragglerJudge::Recovered{399s});
  world.run(1);
  CHECK(world.take_log() == Log{"restart 2"});
}

TEST_CASE("restart: one that did not help is the last for an hour") {
  StragglerWorld world = restarted_in_vain(StragglerMode::restart);
  world.run(20);
  CHECK(world.take_log() ==
        Log{"refrain 2: the restart of rank 2 did not help: a step took 300 ms before and takes "
            "300 ms now; no action for 3600 s",
            "warn 2"});
  world.run(250);
  CHECK(world.take_log() == Log{});
  world.run(30);
  CHECK(world.take_log() == Log{"restart 2"});
}

TEST_CASE("evict: after a restart that did not help, if the rank is still slow") {
  StragglerWorld world = restarted_in_vain(StragglerMode::evict);
  world.confirm();
  CHECK(world.take_log() == Log{"warn 2", "evict 2"});
  world.own[2] = 0.1;
  world.new_round();
  world.run(50);
  CHECK(world.take_log() == Log{});
}

TEST_CASE("evict: another rank is restarted first, as every one is") {
  StragglerWorld world = restarted_in_vain(StragglerMode::evict);
  world.run(3);
  world.own[2] = 0.1;
  world.own[1] = 0.2;
  world.run(60);
  CHECK(world.take_log() == Log{"warn 1", "restart 1"});
}

TEST_CASE("evict: one that did not help shows that it was not that host") {
  StragglerWorld world = restarted_in_vain(StragglerMode::evict);
  world.confirm();
  world.take_log();
  world.new_round();
  world.run(20);
  const Log log = world.take_log();
  REQUIRE(log.size() == 2);
  CHECK(log[0].starts_with("refrain 2: the eviction of rank 2 did not help"));
  CHECK(log[1] == "warn 2");
}

TEST_CASE("evict: half of the promised gain is enough, less is not") {
  for (const double after : {0.14, 0.17}) {
    StragglerWorld world(StragglerMode::restart);
    world.own[2] = 0.2;
    world.confirm();
    world.take_log();
    world.own[2] = after;
    world.new_round();
    world.run(3);
    CHECK(world.take_log().size() == (after < 0.15 ? 0 : 1));
  }
}

TEST_CASE("evict: not without a spare where the job needs all its ranks") {
  StragglerWorld world = restarted_in_vain(StragglerMode::evict,
                                           {.ranks = 4, .nodes = 4, .min_ranks = 4, .spares = 0});
  world.confirm();
  CHECK(world.take_log() ==
        Log{"warn 2",
            "refrain 2: rank 2 is not evicted: there is no spare, and the job needs all its 4 "
            "ranks; no action for 600 s"});
  world.run(30);
  CHECK(world.take_log() == Log{});
  world.run(30);
  CHECK(world.take_log().size() == 1);  // said again, once in 10 minutes
}

TEST_CASE("evict: a rank more than the job needs may go without a spare") {
  StragglerWorld world = restarted_in_vain(StragglerMode::evict,
                                           {.ranks = 4, .nodes = 4, .min_ranks = 3, .spares = 0});
  world.confirm();
  CHECK(world.take_log() == Log{"warn 2", "evict 2"});
}

TEST_CASE("evict: a tenth of the nodes within an hour, and one in any case") {
  StragglerWorld world = restarted_in_vain(StragglerMode::evict);
  world.confirm();
  CHECK(world.take_log() == Log{"warn 2", "evict 2"});
  world.own = {0.1, 0.1, 0.1, 0.1};
  world.new_round();
  world.run(50);
  world.own[1] = 0.2;
  world.run(3);
  CHECK(world.take_log() == Log{"warn 1", "restart 1"});
  world.new_round();
  world.confirm();
  const Log log = world.take_log();
  REQUIRE(log.size() == 2);
  CHECK(log[1].starts_with(
      "refrain 1: rank 1 is not evicted: 1 of 4 nodes evicted within an hour are enough"));
  world.run(200);
  CHECK(std::ranges::count(world.take_log(), "evict 1") == 0);
  world.run(100);
  CHECK(std::ranges::count(world.take_log(), "evict 1") == 1);
}

TEST_CASE("actions keep 10 minutes apart") {
  StragglerWorld world(StragglerMode::restart);
  world.own[2] = 0.2;
  world.confirm();
  world.take_log();
  world.own[2] = 0.1;
  world.own[1] = 0.2;
  world.own[0] = 0.3;
  world.own[2] = 0.1;
  world.new_round();
  world.run(15);
  for (const auto& line : world.take_log()) CHECK_FALSE(line.starts_with("restart"));
}

TEST_CASE("an action that is not carried out is forgotten after 10 minutes") {
  StragglerWorld world(StragglerMode::restart);
  world.own[2] = 0.2;
  world.confirm();
  CHECK(world.take_log() == Log{"warn 2", "restart 2"});
  world.run(45);
  CHECK(world.take_log() == Log{});
  world.run(10);
  CHECK(world.take_log() == Log{"restart 2"});
}
