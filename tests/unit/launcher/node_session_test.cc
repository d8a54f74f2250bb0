#include "launcher/node/node_session.h"

#include <signal.h>

#include <doctest/doctest.h>

#include "base/exit_code.h"

namespace dlaunch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kSessionBegins(seconds(1000));

// A session, and what it has asked for since the last look.
class SessionHost {
 public:
  explicit SessionHost(NodeSession::Config config = plain()) : session(kSessionBegins, config) {}

  static NodeSession::Config plain() {
    return {.join = {.host = "b", .nproc = 2, .job = "job"},
            .search = {.join_timeout = seconds(60)},
            .endpoint = "a:1",
            .key_file = "/key"};
  }
  static NodeSession::Config elected() {
    auto config = plain();
    config.search.elects = true;
    return config;
  }

  void step(const NodeSession::Event& event) {
    for (auto& action : session.step(now, event)) actions.push_back(std::move(action));
  }
  void open() { step(NodeSession::Opened{"10.0.0.2"}); }
  void hear(const NodeMessage& message) { step(NodeSession::Heard{message}); }
  void say(const NodeMessage& message) { step(NodeSession::Says{message}); }
  // A host with two workers of round 1, in a job with that run.
  void work(const std::string& run) {
    open();
    hear(NodeWelcome{.number = 1, .slots = 2, .run = run});
    hear(NodeStart{.round = 1, .size = 4, .places = {{0, 2, 0}, {1, 3, 1}}});
    say(NodeSpawned{0});
    say(NodeSpawned{1});
    say(NodeReady{0, 0, 0});
    hear(NodeAnnounce{1, 4, {{0, 2, 0}, {1, 3, 1}}});
    actions.clear();
  }
  void end(Slot slot, int signal = 0) {
    NodeEnded ended{slot, {}};
    ended.end.signal = signal;
    say(ended);
  }

  template <class Action>
  int count() {
    int n = 0;
    for (const auto& action : actions) n += std::holds_alternative<Action>(action);
    return n;
  }
  // The messages of that kind to the leader.
  template <class Message>
  std::vector<Message> sent() {
    std::vector<Message> found;
    for (const auto& action : actions) {
      const auto* send = std::get_if<NodeSession::Send>(&action);
      const auto* what = send != nullptr ? std::get_if<Message>(&send->what) : nullptr;
      if (what != nullptr) found.push_back(*what);
    }
    return found;
  }
  // Whether the host has joined another run than before.
  bool joined_new_run() {
    bool last = false;
    for (const auto& action : actions) {
      if (const auto* joined = std::get_if<NodeSession::Joined>(&action)) last = joined->new_run;
    }
    return last;
  }
  std::string failure() {
    for (const auto& action : actions) {
      if (const auto* fail = std::get_if<NodeSession::Fail>(&action)) return fail->what;
    }
    return "";
  }
  int exit_code() {
    for (const auto& action : actions) {
      if (const auto* end = std::get_if<NodeSession::End>(&action)) return end->exit_code;
    }
    return -1;
  }

  TimePoint now = kSessionBegins;
  NodeSession session;
  std::vector<NodeSession::Action> actions;
};

TEST_CASE("node session: it joins with its address, and passes orders once it is welcome") {
  SessionHost host;
  host.hear(NodeStop{{0}, SIGTERM});
  CHECK(host.actions.empty());
  host.open();
  REQUIRE(host.sent<NodeJoin>().size() == 1);
  const auto join = host.sent<NodeJoin>().front();
  CHECK(join.host == "b");
  CHECK(join.master_addr == "10.0.0.2");
  CHECK(join.number == -1);
  CHECK(join.run.empty());
  host.hear(NodeStop{{0}, SIGTERM});
  CHECK(host.count<NodeSession::Order>() == 0);
  host.hear(NodeWelcome{.number = 1, .slots = 2});
  CHECK(host.count<NodeSession::Joined>() == 1);
  CHECK(host.session.joined());
  host.hear(NodeStop{{0}, SIGTERM});
  CHECK(host.count<NodeSession::Order>() == 1);
}

TEST_CASE("node session: a leader without a journal takes its workers along") {
  SessionHost host;
  host.work("");
  host.step(NodeSession::Lost{"a:1: gone"});
  CHECK(host.count<NodeSession::KillWorkers>() == 1);
  host.actions.clear();
  host.open();
  CHECK(host.sent<NodeJoin>().empty());  // they still run
  host.end(0, SIGKILL);
  CHECK(host.sent<NodeJoin>().empty());
  host.end(1, SIGKILL);
  REQUIRE(host.sent<NodeJoin>().size() == 1);
  CHECK(host.sent<NodeJoin>().front().found.empty());
  CHECK(host.sent<NodeEnded>().empty());
  host.hear(NodeWelcome{.number = 1, .slots = 2});
  CHECK(host.sent<NodeEnded>().empty());  // the new job knows nothing of them
  CHECK(host.joined_new_run());
}

TEST_CASE("node session: workers of a run that continues are offered to the next leader") {
  SessionHost host;
  host.work("run");
  host.step(NodeSession::Lost{"a:1: gone"});
  CHECK(host.count<NodeSession::KillWorkers>() == 0);
  host.end(1, SIGKILL);
  CHECK(host.sent<NodeEnded>().empty());
  host.open();
  REQUIRE(host.sent<NodeJoin>().size() == 1);
  const auto join = host.sent<NodeJoin>().front();
  CHECK(join.run == "run");
  CHECK(join.number == 1);
  REQUIRE(join.found.size() == 2);
  CHECK(join.found[0].linked);
  CHECK(join.found[0].in_round == 1);
  // A worker that asks for a round after the offer is not forgotten.
  host.say(NodeReady{0, 1, 7});
  CHECK(host.sent<NodeReady>().empty());
  host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "run"});
  CHECK(host.sent<NodeEnded>().size() == 1);
  REQUIRE(host.sent<NodeReady>().size() == 1);
  CHECK(host.sent<NodeReady>().front().left == 1);
  CHECK(host.sent<NodeReady>().front().version == 7);
  CHECK_FALSE(host.joined_new_run());
}

TEST_CASE("node session: a late request to leave an earlier round is not offered as a new one") {
  SessionHost host;
  host.work("run");
  host.step(NodeSession::Lost{"gone"});
  host.say(NodeReady{0, 0, 0});
  host.open();
  REQUIRE(host.sent<NodeJoin>().size() == 1);
  CHECK(!host.sent<NodeJoin>().front().found[0].ready);
  host.say(NodeReady{0, 1, 0});
  host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "run"});
  CHECK(host.sent<NodeReady>().size() == 1);
}

TEST_CASE("node session: each leader learns which process does not end, until it has ended") {
  SessionHost host;
  host.work("run");
  host.say(NodeStuck{.slot = 1});
  CHECK(host.sent<NodeStuck>().size() == 1);
  const auto next_leader = [&host] {
    host.actions.clear();
    host.open();
    host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "run"});
  };
  host.step(NodeSession::Lost{"gone"});
  host.say(NodeStuck{.slot = 0});
  next_leader();
  CHECK(host.sent<NodeStuck>().size() == 2);
  host.step(NodeSession::Lost{"gone"});
  host.end(0, SIGKILL);
  host.end(1, SIGKILL);
  next_leader();
  CHECK(host.sent<NodeStuck>().empty());
  CHECK(host.sent<NodeEnded>().size() == 2);
}

TEST_CASE("node session: after an order to clear it joins as a fresh host, without workers") {
  SessionHost host;
  host.work("run");
  host.step(NodeSession::Lost{"gone"});
  host.end(1, SIGKILL);
  host.open();
  host.actions.clear();
  host.hear(NodeClear{});
  CHECK(host.count<NodeSession::KillWorkers>() == 1);
  CHECK(host.sent<NodeJoin>().empty());
  host.end(0, SIGKILL);
  REQUIRE(host.sent<NodeJoin>().size() == 1);
  CHECK(host.sent<NodeJoin>().front().found.empty());
  host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "run"});
  CHECK(host.sent<NodeEnded>().empty());
}

TEST_CASE("node session: a fresh join waits for a start that still waits its turn") {
  SessionHost host;
  host.open();
  host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "run"});
  host.hear(NodeStart{.round = 1, .size = 2, .places = {{0, 0, 0}, {1, 1, 1}}});
  host.say(NodeSpawned{0});
  host.step(NodeSession::Lost{"gone"});
  host.open();
  host.hear(NodeClear{});
  host.actions.clear();
  host.end(0, SIGKILL);
  CHECK(host.sent<NodeJoin>().empty());
  host.say(NodeNotStarted{1});
  CHECK(host.sent<NodeJoin>().size() == 1);
  host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "run"});
  CHECK(host.sent<NodeNotStarted>().empty());
}

TEST_CASE("node session: a run that its leader may not have written down is forgotten with it") {
  SessionHost host(SessionHost::elected());
  host.open();
  host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "run"});
  host.step(NodeSession::Lost{"gone"});
  host.actions.clear();
  host.open();
  REQUIRE(host.sent<NodeJoin>().size() == 1);
  CHECK(host.sent<NodeJoin>().front().run.empty());
  // This leader's job has begun, or it would not ask for a test.
  host.hear(NodeTest{});
  host.step(NodeSession::Tested{""});
  host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "other"});
  host.step(NodeSession::Lost{"gone"});
  host.actions.clear();
  host.open();
  REQUIRE(host.sent<NodeJoin>().size() == 1);
  CHECK(host.sent<NodeJoin>().front().run == "other");
}

TEST_CASE("node session: a leader that has forgotten the run gets a fresh host at once") {
  SessionHost host;
  host.open();
  host.hear(NodeWelcome{.number = 1, .slots = 2, .run = "run"});
  host.hear(NodeStart{.round = 1, .size = 1, .places = {{0, 0, 0}}});
  host.say(NodeStartFailed{0, {}});  // nothing is left
  host.step(NodeSession::Lost{"gone"});
  host.open();
  host.actions.clear();
  host.hear(NodeClear{});
  REQUIRE(host.sent<NodeJoin>().size() == 1);
  CHECK(host.sent<NodeJoin>().front().run.empty());
}

TEST_CASE("node session: another elected leader replaces the one before") {
  SessionHost host(SessionHost::elected());
  host.work("run");
  host.step(NodeSession::Follows{"c:1", false, " (a note)"});
  CHECK(!host.session.joined());
  CHECK(host.count<NodeSession::KillWorkers>() == 0);
  host.now += seconds(6);
  host.step(LeaderSearch::Failure{.why = "c:1: refused"});
  bool noted = false;
  for (const auto& action : host.actions) {
    const auto* warn = std::get_if<NodeSession::Warn>(&action);
    noted |= warn != nullptr && warn->what.find("c:1: refused (a note)") != std::string::npos;
  }
  CHECK(noted);
  host.open();
  CHECK(host.sent<NodeJoin>().size() == 1);
}

TEST_CASE("node session: it gives up, and says why") {
  SUBCASE("the leader refuses it") {
    SessionHost host;
    host.open();
    host.hear(NodeRefused{"it is full"});
    CHECK(host.failure() == "the leading dlaunch refused this host: it is full");
    CHECK(host.exit_code() == kExitRendezvous);
  }
  SUBCASE("the secret is another one") {
    SessionHost host;
    host.step(LeaderSearch::Failure{.why = "a:1: no secret", .final = true});
    CHECK(host.failure() ==
          "cannot join the job at a:1: no secret; its hosts have to share /key, or a "
          "--secret-file");
    CHECK(host.exit_code() == kExitRendezvous);
  }
  SUBCASE("the leader of its workers does not come back") {
    SessionHost host;
    host.work("run");
    host.step(NodeSession::Lost{"gone"});
    host.now += seconds(61);
    host.step(LeaderSearch::Failure{.why = "a:1: refused", .refused = true});
    CHECK(host.failure().find("was not started again within 60 s") != std::string::npos);
    CHECK(host.count<NodeSession::KillDescendants>() == 1);
    CHECK(host.exit_code() == kExitRendezvous);
  }
  SUBCASE("the job's time is over") {
    SessionHost host;
    host.step(NodeSession::TimedOut{});
    CHECK(host.failure() == "the job's --timeout passed: nobody leads it at a:1");
    CHECK(host.exit_code() == kExitTimeout);
    host.actions.clear();
    host.open();
    CHECK(host.actions.empty());  // it has ended
  }
  SUBCASE("the leader handles the time of a host that has joined") {
    SessionHost host;
    host.work("run");
    host.step(NodeSession::TimedOut{});
    CHECK(host.actions.empty());
  }
}

TEST_CASE("node session: the leader's end of the job ends this host, with the same code") {
  SessionHost host;
  host.work("");
  host.hear(NodeFinish{.exit_code = 7, .why = "rank 0 failed"});
  CHECK(host.count<NodeSession::Finished>() == 1);
  CHECK(host.failure() == "rank 0 failed");
  CHECK(host.exit_code() == 7);
}

TEST_CASE("node session: a host whose campaign leads waits for that to end") {
  SessionHost host(SessionHost::elected());
  host.step(NodeSession::Follows{"b:1", true, ""});
  host.work("run");
  host.hear(NodeFinish{.exit_code = 7, .why = "rank 0 failed"});
  CHECK(host.failure().empty());  // the campaign has said so
  CHECK(host.count<NodeSession::Disconnect>() == 1);
  CHECK(host.exit_code() == -1);
  CHECK(host.session.over());
  host.step(NodeSession::CampaignGone{});
  CHECK(host.exit_code() == 7);
}

TEST_CASE("node session: a lost campaign, or starter, ends this host") {
  SessionHost host(SessionHost::elected());
  host.work("run");
  host.step(NodeSession::CampaignGone{});
  CHECK(host.count<NodeSession::KillDescendants>() == 1);
  CHECK(host.exit_code() == kExitInternal);
  SessionHost started;
  started.work("");
  started.step(NodeSession::StarterGone{});
  CHECK(started.count<NodeSession::Warn>() == 1);
  CHECK(started.exit_code() == kExitRendezvous);
}

TEST_CASE("node session: the leader gets the user's signal, and a second one acts here") {
  SessionHost host;
  host.work("");
  host.step(NodeSession::Signal{SIGINT});
  REQUIRE(host.sent<NodeSignal>().size() == 1);
  host.now += milliseconds(50);
  host.step(NodeSession::Signal{SIGINT});  // the same wish
  CHECK(host.exit_code() == -1);
  host.now += seconds(1);
  host.step(NodeSession::Signal{SIGINT});
  CHECK(host.sent<NodeSignal>().size() == 1);
  CHECK(host.count<NodeSession::KillDescendants>() == 1);
  CHECK(host.exit_code() == 128 + SIGINT);
}

TEST_CASE("node session: a signal before it has joined") {
  SessionHost host;
  host.step(NodeSession::Signal{SIGUSR1});
  CHECK(host.actions.empty());
  host.step(NodeSession::Signal{SIGTERM});
  CHECK(host.exit_code() == 128 + SIGTERM);
}

TEST_CASE("node session: one health test at a time, for the leader that asked") {
  SessionHost host;
  host.open();
  host.hear(NodeTest{});
  host.hear(NodeTest{});
  CHECK(host.count<NodeSession::Test>() == 1);
  host.step(NodeSession::Tested{"no GPU"});
  REQUIRE(host.sent<NodeTested>().size() == 1);
  CHECK(host.sent<NodeTested>().front().why == "no GPU");
  CHECK(host.count<NodeSession::Warn>() == 1);
  host.hear(NodeTest{});
  host.step(NodeSession::Tested{"no GPU"});
  CHECK(host.count<NodeSession::Warn>() == 1);  // the user knows
  host.hear(NodeTest{});
  host.step(NodeSession::Lost{"gone"});
  CHECK(host.count<NodeSession::StopTest>() == 1);
  host.step(NodeSession::Tested{""});
  CHECK(host.sent<NodeTested>().size() == 2);
}

}  // namespace
}  // namespace dlaunch
