#include "elastic/agent_core.h"

#include <signal.h>

#include <algorithm>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// What a core asked for, as words: "spawn 0", "signal 0 15", "not 1", "stuck 0".
std::vector<std::string> words(const std::vector<AgentCore::Action>& actions) {
  struct Words {
    std::string operator()(const AgentCore::Spawn& a) { return "spawn " + std::to_string(a.slot); }
    std::string operator()(const AgentCore::SendSignal& a) {
      return "signal " + std::to_string(a.slot) + " " + std::to_string(a.number);
    }
    std::string operator()(const AgentCore::NotStarted& a) {
      return "not " + std::to_string(a.slot);
    }
    std::string operator()(const AgentCore::TellStuck& a) {
      return "stuck " + std::to_string(a.slot);
    }
  };
  std::vector<std::string> out;
  for (const auto& action : actions) {
    const auto word = std::visit(Words{}, action);
    // It goes with each signal that ends a process.
    if (!word.ends_with(" " + std::to_string(SIGCONT))) out.push_back(word);
  }
  return out;
}
using Words = std::vector<std::string>;

struct Node {
  explicit Node(int slots = 3, Duration grace = 10s) : core(slots, grace) {}
  Words feed(const AgentCore::Event& event) { return words(core.step(now, event)); }
  Words at_deadline() {
    REQUIRE(core.deadline());
    now = std::max(now, *core.deadline());
    return feed(AgentCore::Clock{});
  }
  void run(int workers) {
    std::vector<Slot> slots;
    for (Slot slot = 0; slot < workers; ++slot) slots.push_back(slot);
    feed(AgentCore::Start{slots});
    for (Slot slot = 0; slot < workers; ++slot) feed(AgentCore::Spawned{});
  }
  AgentCore core;
  TimePoint now = kStart;
};

}  // namespace

TEST_CASE("workers start one after another") {
  Node node;
  CHECK(node.feed(AgentCore::Start{{0, 1, 2}}) == Words{"spawn 0"});
  CHECK(node.feed(AgentCore::Spawned{}) == Words{"spawn 1"});
  CHECK(node.feed(AgentCore::SpawnFailed{1}).empty());  // the news of it go first
  CHECK(node.feed(AgentCore::Clock{}) == Words{"spawn 2"});
  CHECK(node.feed(AgentCore::Spawned{}).empty());
  CHECK_FALSE(node.core.deadline());
}

TEST_CASE("workers that are requested later wait for their turn, too") {
  Node node;
  CHECK(node.feed(AgentCore::Start{{0}}) == Words{"spawn 0"});
  CHECK(node.feed(AgentCore::Start{{1}}).empty());
  CHECK(node.feed(AgentCore::Spawned{}) == Words{"spawn 1"});
  CHECK(node.feed(AgentCore::Start{{2}}).empty());
  CHECK(node.feed(AgentCore::SpawnFailed{0}).empty());  // it never came to run its program
  CHECK(node.feed(AgentCore::Spawned{}) == Words{"spawn 2"});
}

TEST_CASE("a worker that does not end within the grace is killed, and reported after that") {
  Node node;
  node.run(2);
  CHECK(node.feed(AgentCore::Stop{{0, 1}, SIGTERM}) == Words{"signal 0 15", "signal 1 15"});
  CHECK(node.feed(AgentCore::Exited{0}).empty());
  CHECK(node.at_deadline() == Words{"signal 1 9"});
  CHECK(node.now == kStart + 10s);
  CHECK(node.at_deadline() == Words{"stuck 1"});
  CHECK(node.now == kStart + 15s);
  CHECK_FALSE(node.core.deadline());
  CHECK(node.feed(AgentCore::Stop{{1}, SIGKILL}).empty());
}

TEST_CASE("a second stop does not prolong the grace, and is not lost") {
  Node node;
  node.run(1);
  node.feed(AgentCore::Stop{{0}, SIGTERM});
  node.now += 4s;
  CHECK(node.feed(AgentCore::Stop{{0}, SIGINT}) == Words{"signal 0 2"});
  CHECK(*node.core.deadline() == kStart + 10s);
  CHECK(node.feed(AgentCore::Stop{{0}, SIGKILL}) == Words{"signal 0 9"});
  CHECK(node.feed(AgentCore::Stop{{0}, SIGKILL}).empty());
}

TEST_CASE("no grace: the signal, and at once SIGKILL") {
  Node node(1, Duration::zero());
  node.run(1);
  CHECK(node.feed(AgentCore::Stop{{0}, SIGTERM}) == Words{"signal 0 15", "signal 0 9"});
}

TEST_CASE("a worker that is stopped before its turn is not started, one in the middle is stopped") {
  Node node;
  CHECK(node.feed(AgentCore::Start{{0, 1}}) == Words{"spawn 0"});
  CHECK(node.feed(AgentCore::Stop{{0, 1}, SIGTERM}) == Words{"not 1"});
  CHECK(node.feed(AgentCore::Spawned{}) == Words{"signal 0 15"});
  CHECK(node.feed(AgentCore::Exited{0}).empty());
  CHECK(node.feed(AgentCore::Start{{1}}) == Words{"spawn 1"});
}

TEST_CASE("a worker that is killed before it runs stays killed, whatever order follows") {
  Node node;
  node.feed(AgentCore::Start{{0}});
  CHECK(node.feed(AgentCore::Stop{{0}, SIGKILL}).empty());
  CHECK(node.feed(AgentCore::Stop{{0}, SIGTERM}).empty());
  CHECK(node.feed(AgentCore::Spawned{}) == Words{"signal 0 9"});
}

TEST_CASE("a worker that has ended gets no signal") {
  Node node;
  node.run(3);
  node.feed(AgentCore::Exited{1});
  CHECK(node.feed(AgentCore::Stop{{1}, SIGTERM}).empty());
  node.feed(AgentCore::Stop{{2}, SIGTERM});
  CHECK(node.feed(AgentCore::HandOn{SIGUSR1}) == Words{"signal 0 10", "signal 2 10"});
}

TEST_CASE("a stopped process is continued only for a signal that shall end it") {
  Node node;
  node.run(1);
  const auto sent = [&](const AgentCore::Event& event) {
    std::vector<int> numbers;
    for (const auto& action : node.core.step(node.now, event)) {
      numbers.push_back(std::get<AgentCore::SendSignal>(action).number);
    }
    return numbers;
  };
  CHECK(sent(AgentCore::HandOn{SIGUSR1}) == std::vector<int>{SIGUSR1});
  CHECK(sent(AgentCore::Stop{{0}, SIGTERM}) == std::vector<int>{SIGTERM, SIGCONT});
  CHECK(sent(AgentCore::Stop{{0}, SIGKILL}) == std::vector<int>{SIGKILL});
}

TEST_CASE("a node grows, and starts a worker in a slot that it did not have") {
  AgentCore core(1, 10s);
  core.grow(3);
  const auto actions = core.step(kStart, AgentCore::Start{{2}});
  REQUIRE(actions.size() == 1);
  CHECK(std::get<AgentCore::Spawn>(actions[0]).slot == 2);
  core.grow(1);  // never shrinks
  CHECK(core.step(kStart, AgentCore::Spawned{}).empty());
}
