#include "elastic/agent_core.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart(1000s);

// Drives a core and performs its actions on a pretended set of processes. What becomes of a Spawn
// is told at once, unless `slow` leaves that to answer_spawn().
class World {
 public:
  explicit World(AgentConfig config) : core(config) {}

  void feed(const AgentCore::Event& event) {
    const AgentState from = core.state();
    const auto actions = core.step(now, event);
    if (agent_handles(from, kind(event))) moves.insert({from, kind(event), core.state()});
    for (const auto& action : actions) perform(action);
    if (!slow && spawning && !finish) answer_spawn();
  }
  void start() { feed(AgentCore::Start{}); }
  void answer_spawn() {
    const int worker = *std::exchange(spawning, std::nullopt);
    if (worker == fail_spawn_of) return feed(AgentCore::SpawnFailed{worker});
    CHECK(running.insert(worker).second);
    feed(AgentCore::Spawned{});
  }
  void exit(int worker, bool well) {
    REQUIRE(running.erase(worker) == 1);
    feed(AgentCore::Exited{worker, well});
  }
  void vanish(int worker) {  // it was forked, but its exec failed
    REQUIRE(running.erase(worker) == 1);
    feed(AgentCore::SpawnFailed{worker});
  }
  void advance_to_deadline() {
    REQUIRE(core.deadline());
    now = std::max(now, *core.deadline());
    feed(AgentCore::Clock{});
  }

  AgentCore core;
  TimePoint now = kStart;
  std::set<int> running;
  std::optional<int> spawning;
  std::multimap<int, int> signals;  // worker -> number, of the current round
  std::set<AgentMove> moves;
  int spawns = 0, kills = 0, rounds = 0;
  int fail_spawn_of = -1;
  bool slow = false;
  std::optional<AgentCore::Finish> finish;

 private:
  static AgentOn kind(const AgentCore::Event& event) {
    if (const auto* e = std::get_if<AgentCore::Exited>(&event)) {
      return e->well ? AgentOn::exited_well : AgentOn::failed;
    }
    if (const auto* e = std::get_if<AgentCore::Signal>(&event)) {
      return ends_the_job(e->number) ? AgentOn::stop : AgentOn::pass;
    }
    if (std::holds_alternative<AgentCore::Start>(event)) return AgentOn::start;
    if (std::holds_alternative<AgentCore::Spawned>(event)) return AgentOn::spawned;
    if (std::holds_alternative<AgentCore::SpawnFailed>(event)) return AgentOn::spawn_failed;
    return AgentOn::clock;
  }
  void perform(const AgentCore::Action& action) {
    CHECK_FALSE(finish);
    if (const auto* spawn = std::get_if<AgentCore::Spawn>(&action)) {
      CHECK(core.state() == AgentState::starting);
      CHECK_FALSE(spawning);
      CHECK(spawn->round >= rounds);
      if (spawn->round > rounds) {
        CHECK(running.empty());  // nobody of an older round runs on
        CHECK(spawn->worker == 0);
        signals.clear();
      }
      rounds = spawn->round;
      ++spawns;
      spawning = spawn->worker;
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

TEST_CASE("the same signal twice at once is one wish, as timeout(1) sends it") {
  World world({.workers = 2});
  world.start();
  world.feed(AgentCore::Signal{SIGTERM});
  world.now += 1ms;
  world.feed(AgentCore::Signal{SIGTERM});
  CHECK(world.kills == 0);
  CHECK(world.signals.count(0) == 2);  // SIGTERM and SIGCONT, once
  world.now += 200ms;
  world.feed(AgentCore::Signal{SIGTERM});
  CHECK(world.kills == 1);
}

TEST_CASE("a second SIGHUP is handed on and kills nobody") {
  World world({.workers = 1});
  world.start();
  for (int i = 0; i < 3; ++i) {
    world.feed(AgentCore::Signal{SIGHUP});
    world.now += 1s;
  }
  CHECK(world.kills == 0);
  CHECK(world.signals.size() == 6);
  world.exit(0, true);
  CHECK(world.finish->end == AgentEnd::interrupted);
  CHECK(world.finish->signal == SIGHUP);
}

TEST_CASE("a worker that comes to run while the others are drained is drained, too") {
  World world({.workers = 3});
  world.slow = true;
  world.start();
  world.answer_spawn();
  world.feed(AgentCore::Signal{SIGINT});
  world.answer_spawn();
  CHECK(world.running == std::set{0, 1});
  CHECK(sent(world, 1, SIGINT));
  CHECK(world.spawns == 2);

  World killed({.workers = 2, .grace = 0s});
  killed.slow = true;
  killed.start();
  killed.feed(AgentCore::Signal{SIGINT});
  CHECK(killed.kills == 1);
  killed.answer_spawn();
  CHECK(killed.kills == 2);
}

TEST_CASE("a forked worker whose exec failed is a failed start, and no restart helps") {
  World world({.workers = 2, .max_restarts = 3});
  world.start();
  world.vanish(1);
  CHECK(sent(world, 0, SIGTERM));
  world.exit(0, false);
  CHECK(world.finish->end == AgentEnd::spawn_failed);
  CHECK(world.rounds == 1);

  World later({.workers = 2, .max_restarts = 3});
  later.start();
  later.exit(0, false);
  later.vanish(1);
  CHECK(later.finish->end == AgentEnd::spawn_failed);
}

TEST_CASE("no restart once the job's time is over") {
  World world({.workers = 1, .grace = 10s, .timeout = 5s, .max_restarts = 3});
  world.start();
  world.now += 6s;
  world.exit(0, false);
  CHECK(world.rounds == 1);
  CHECK(world.finish->end == AgentEnd::worker_failed);
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

TEST_CASE("20,000 random jobs end, once, with everybody reaped, and make every move of the table") {
  std::set<AgentMove> moves;
  for (unsigned seed = 0; seed < 20000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    World world({.workers = 1 + static_cast<int>(random() % 6),
                 .grace = std::chrono::seconds(random() % 3),
                 .timeout = std::chrono::seconds(random() % 4 == 0 ? 5 : 0),
                 .max_restarts = static_cast<int>(random() % 3)});
    if (random() % 8 == 0) world.fail_spawn_of = static_cast<int>(random() % 6);
    world.slow = random() % 2 == 0;
    const bool mortal = random() % 10 != 0;  // else some worker survives even SIGKILL
    if (random() % 50 == 0) world.feed(AgentCore::Signal{SIGTERM});
    if (!world.finish) world.start();
    for (int turn = 0; turn < 400 && !world.finish; ++turn) {
      world.now += std::chrono::milliseconds(random() % 200);
      const unsigned choice = random() % 16;
      if (choice < 3 && world.spawning) {
        world.answer_spawn();
      } else if (choice < 9 && !world.running.empty() && (mortal || world.running.size() > 1)) {
        auto it = world.running.begin();
        std::advance(it, random() % world.running.size());
        if (random() % 16 == 0)
          world.vanish(*it);
        else
          world.exit(*it, random() % 2 == 0);
      } else if (choice < 11) {
        const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGCONT, SIGHUP};
        world.feed(AgentCore::Signal{numbers[random() % 5]});
      } else if (choice < 12) {
        world.feed(AgentCore::Clock{});  // of a timer that was set for something else
      } else if (world.core.deadline()) {
        world.advance_to_deadline();
      } else if (!mortal) {
        world.feed(AgentCore::Signal{SIGTERM});
      }
    }
    REQUIRE(world.finish);
    const bool reaped = world.running.empty() && !world.spawning;
    CHECK(world.finish->all_reaped == reaped);
    CHECK((reaped || !mortal || world.core.killed()));
    CHECK(world.core.step(world.now, AgentCore::Signal{SIGTERM}).empty());
    CHECK_FALSE(world.core.deadline());
    moves.merge(world.moves);
  }
  // AgentCore asserts that each move is a row; this is the other way round.
  CHECK(moves == std::set<AgentMove>(kAgentMoves.begin(), kAgentMoves.end()));
}
