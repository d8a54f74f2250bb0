#include "launcher/lead/monitor/requests.h"

#include <optional>
#include <utility>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// What was asked, and the answers that came.
struct Asked {
  std::vector<std::pair<int, NodeMessage>> questions;
  std::set<int> gone;
  MonitorRequests requests{
      [this](int node) { return !gone.contains(node); },
      [this](int node, const NodeMessage& question) { questions.emplace_back(node, question); }};
  std::vector<std::vector<std::string>> stacks;
  std::optional<std::map<int, NodeWorkers>> workers;

  void dump(int node, Slot slot) {
    requests.dump(node, slot, [this](int, const auto& lines) { stacks.push_back(lines); });
  }
  void survey(const std::set<int>& nodes) {
    requests.survey(kStart, nodes, false, [this](const auto& by_node) { workers = by_node; });
  }
};

}  // namespace

TEST_CASE("stacks come once, from the asked host, or end with the loss of that host") {
  Asked asked;
  asked.dump(1, 4);
  asked.dump(2, 5);
  REQUIRE(asked.questions.size() == 2);
  const auto dump = std::get<NodeDump>(asked.questions[0].second);
  CHECK(asked.questions[0].first == 1);
  CHECK(dump.slot == 4);
  asked.requests.take(2, NodeStacks{dump.request, 4, 7, {"not from there"}});
  CHECK(asked.stacks.empty());
  for (int twice = 0; twice < 2; ++twice) {
    asked.requests.take(1, NodeStacks{dump.request, 4, 7, {"here"}});
    CHECK(asked.stacks == std::vector<std::vector<std::string>>{{"here"}});
  }
  asked.requests.lost(1);
  CHECK(asked.stacks.size() == 1);
  asked.requests.lost(2);
  REQUIRE(asked.stacks.size() == 2);
  CHECK(asked.stacks[1].at(0).find("lost") != std::string::npos);
}

TEST_CASE("a host that is gone is not asked, and its answer is that none comes") {
  Asked asked;
  asked.gone = {1};
  asked.dump(1, 4);
  REQUIRE(asked.stacks.size() == 1);
  CHECK(asked.stacks[0].at(0).find("lost") != std::string::npos);
  int answers = 0;
  asked.requests.ask_recorder(1, 4, [&](const NodeRecorded& recorded) {
    ++answers;
    CHECK(recorded.positions.empty());
  });
  CHECK(answers == 1);
  CHECK(asked.questions.empty());
}

TEST_CASE("a survey is over when the last host has answered or is lost") {
  Asked asked;
  asked.survey({0, 1, 2});
  REQUIRE(asked.questions.size() == 3);
  const auto request = std::get<NodeSurvey>(asked.questions[0].second).request;
  asked.requests.take(0, NodeWorkers{request, {{.slot = 3}}});
  asked.requests.take(7, NodeWorkers{request, {}});
  asked.requests.lost(1);
  CHECK_FALSE(asked.workers);
  asked.requests.take(2, NodeWorkers{request, {}});
  REQUIRE(asked.workers);
  CHECK(asked.workers->size() == 2);
  CHECK(asked.workers->at(0).workers.at(0).slot == 3);
}

TEST_CASE("a survey does not wait for ever for a host that does not answer") {
  Asked asked;
  asked.survey({0, 1});
  const auto request = std::get<NodeSurvey>(asked.questions[0].second).request;
  asked.requests.take(0, NodeWorkers{request, {}});
  CHECK(asked.requests.deadline() == kStart + 1s);
  asked.requests.on_clock(kStart + 999ms);
  CHECK_FALSE(asked.workers);
  asked.requests.on_clock(kStart + 1s);
  CHECK_FALSE(asked.requests.deadline());
  REQUIRE(asked.workers);
  CHECK(asked.workers->size() == 1);
  // No host: an answer at once.
  asked.workers.reset();
  asked.survey({});
  CHECK(asked.workers->empty());
}
