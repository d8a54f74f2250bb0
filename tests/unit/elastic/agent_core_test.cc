#include "elastic/agent_core.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart(1000s);

// Drives a core and performs its actions on a pretended set of processes.
class World {
 public:
  explicit World(AgentConfig config) : core(config) {}

  void feed(const AgentCore::Event& event) {
    for (const auto& action : core.step(now, event)) perform(action);
  }
  void start() { feed(AgentCore::Start{}); }
  void exit(int worker, bool well) {
    REQUIRE(running.erase(worker) == 1);
    feed(AgentCore::Exited{worker, well});
  }
  void advance_to_deadline() {
    REQUIRE(core.deadline());
    now = *core.deadline();
    feed(AgentCore::Clock{});
  }

  AgentCore core;
  TimePoint now = kStart;
  std::set<int> running;
  std::multimap<int, int> signals;  // worker -> number, of the current round
  int spawns = 0, kills = 0, rounds = 0;
  int fail_spawn_of = -1;
  std::optional<AgentCore::Finish> finish;

 private:
  void perform(const AgentCore::Action& action) {
    CHECK_FALSE(finish);
    if (const auto* spawn = std::get_if<AgentCore::Spawn>(&action)) {
      CHECK(spawn->round >= rounds);
      if (spawn->round > rounds) {
        CHECK(running.empty());  // nobody of an older round runs on
        signals.clear();
      }
      rounds = spawn->round;
      ++spawns;
      if (spawn->worker == fail_spawn_of) return feed(AgentCore::SpawnFailed{});
      CHECK(running.insert(spawn->worker).second);
      feed(AgentCore::Spawned{});
    } else if (const auto* send = std::get_if<AgentCore::SendSignal>(&action)) {
      CHECK(running.contains(send->worker));
      signals.emplace(send->worker, send->number);
    } else if (std::holds_alternative<AgentCore::KillTree>(action)) {
      ++kills;
    } else {
      finish = std::get<AgentCore::Finish>(action);
    }
  }
};

bool sent(const World& world, int worker, int number) {
  const auto [from, to] = world.signals.equal_range(worker);
  return std::any_of(from, to, [&](const auto& item) { return item.second == number; });
}

}  // namespace

TEST_CASE("all workers end well: the job succeeds") {
  World world({.workers = 3});
  world.start();
  CHECK(world.running == std::set{0, 1, 2});
  for (const int w : {2, 0, 1}) world.exit(w, true);
  REQUIRE(world.finish);
  CHECK(world.finish->end == AgentEnd::succeeded);
  CHECK(world.finish->all_reaped);
  CHECK(world.kills == 1);  // what they may have left behind
}

TEST_CASE("the first failure drains the others: SIGTERM, grace, SIGKILL") {
  World world({.workers = 3, .grace = 10s});
  world.start();
  world.exit(2, false);
  CHECK(world.core.state() == AgentState::draining);
  CHECK(sent(world, 0, SIGTERM));
  CHECK(sent(world, 1, SIGCONT));
  CHECK_FALSE(sent(world, 2, SIGTERM));
  CHECK(world.core.deadline() == kStart + 10s);
  world.exit(0, false);
  world.advance_to_deadline();
  CHECK(world.kills == 1);
  CHECK(world.core.killed());
  CHECK_FALSE(world.finish);
  world.exit(1, false);
  REQUIRE(world.finish);
  CHECK(world.finish->end == AgentEnd::worker_failed);
}

TEST_CASE("a worker that cannot be started ends the job before others are started in vain") {
  World world({.workers = 5});
  world.fail_spawn_of = 2;
  world.start();
  CHECK(world.spawns == 3);
  CHECK(world.core.state() == AgentState::draining);
  CHECK(sent(world, 0, SIGTERM));
  world.exit(0, false);
  world.exit(1, true);
  CHECK(world.finish->end == AgentEnd::spawn_failed);
}

TEST_CASE("the user's signal is handed on as it is; the second one kills at once") {
  World world({.workers = 2});
  world.start();
  world.feed(AgentCore::Signal{SIGINT});
  CHECK(sent(world, 0, SIGINT));
  CHECK(world.kills == 0);
  world.feed(AgentCore::Signal{SIGTERM});
  CHECK(world.kills == 1);
  world.feed(AgentCore::Signal{SIGTERM});
  CHECK(world.kills == 1);
  world.exit(0, false);
  world.exit(1, false);
  CHECK(world.finish->end == AgentEnd::interrupted);
  CHECK(world.finish->signal == SIGINT);
}

TEST_CASE("pass-through signals change nothing else") {
  World world({.workers = 2});
  world.start();
  for (const int number : {SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT}) {
    world.feed(AgentCore::Signal{number});
    CHECK(sent(world, 0, number));
    CHECK(sent(world, 1, number));
  }
  CHECK(world.core.state() == AgentState::running);
}

TEST_CASE("restarts begin a new round until they are used up, and never after the user's signal") {
  World world({.workers = 2, .max_restarts = 2});
  world.start();
  for (int round = 1; round <= 3; ++round) {
    CHECK(world.core.round() == round);
    world.exit(0, false);
    if (round < 3) world.exit(1, false);
  }
  CHECK_FALSE(world.finish);
  world.exit(1, false);
  CHECK(world.finish->end == AgentEnd::worker_failed);

  World stopped({.workers = 2, .max_restarts = 2});
  stopped.start();
  stopped.exit(0, false);
  stopped.feed(AgentCore::Signal{SIGTERM});
  stopped.exit(1, false);
  CHECK(stopped.finish->end == AgentEnd::worker_failed);
  CHECK(stopped.rounds == 1);
}

TEST_CASE("the job's time-out drains; an unkillable worker does not hold the end up for ever") {
  World world({.workers = 1, .grace = 1s, .timeout = 60s});
  world.start();
  CHECK(world.core.deadline() == kStart + 60s);
  world.advance_to_deadline();
  CHECK(sent(world, 0, SIGTERM));
  world.advance_to_deadline();
  CHECK(world.kills == 1);
  world.advance_to_deadline();
  REQUIRE(world.finish);
  CHECK(world.finish->end == AgentEnd::timed_out);
  CHECK_FALSE(world.finish->all_reaped);
}

TEST_CASE("grace 0 kills at once") {
  World world({.workers = 2, .grace = 0s});
  world.start();
  world.exit(0, false);
  CHECK(world.kills == 1);
}

TEST_CASE("20,000 random jobs end, once, with everybody reaped and rounds that only grow") {
  for (unsigned seed = 0; seed < 20000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    World world({.workers = 1 + static_cast<int>(random() % 6),
                 .grace = std::chrono::seconds(random() % 3),
                 .timeout = std::chrono::seconds(random() % 4 == 0 ? 5 : 0),
                 .max_restarts = static_cast<int>(random() % 3)});
    if (random() % 8 == 0) world.fail_spawn_of = static_cast<int>(random() % 6);
    const bool mortal = random() % 10 != 0;  // else some worker survives even SIGKILL
    world.start();
    for (int turn = 0; turn < 400 && !world.finish; ++turn) {
      const unsigned choice = random() % 10;
      if (choice < 6 && !world.running.empty() && (mortal || world.running.size() > 1)) {
        auto it = world.running.begin();
        std::advance(it, random() % world.running.size());
        world.exit(*it, random() % 2 == 0);
      } else if (choice < 7) {
        const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGCONT, SIGHUP};
        world.feed(AgentCore::Signal{numbers[random() % 5]});
      } else if (world.core.deadline()) {
        world.advance_to_deadline();
      } else if (!mortal) {
        world.feed(AgentCore::Signal{SIGTERM});
      }
    }
    REQUIRE(world.finish);
    CHECK(world.finish->all_reaped == world.running.empty());
    CHECK(world.core.step(world.now, AgentCore::Signal{SIGTERM}).empty());
    CHECK_FALSE(world.core.deadline());
  }
}
