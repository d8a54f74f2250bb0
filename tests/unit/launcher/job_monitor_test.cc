// The leader watches the workers of all hosts, here without sockets and processes.
#include "launcher/lead/job_monitor.h"

#include <csignal>

#include "launcher/wire/stack_groups.h"
#include "tests/unit/launcher/membership_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Links = std::vector<MembershipWorld::Link>;

// Hosts a, b and c with two workers each, which all run. Rank = slot.
class MonitorWorld final : private JobMonitor::Effects {
 public:
  explicit MonitorWorld(const Plan& plan) : hosts(plan) {
    hosts.comes(1, "b");
    hosts.comes(2, "c");
    job.emplace(hosts.membership.shape({}));
    (void)job->step(kStart, JobCore::Start{});
    for (Slot slot = 0; slot < 6; ++slot) (void)job->step(kStart, JobCore::Spawned{slot});
    JobMonitor::Effects& effects = *this;
    monitor.emplace(hosts.plan, hosts.membership, *job, effects);
    monitor->begin_round(1, 6, std::nullopt);
    hosts.sent.clear();
  }

  void pass(Duration time) {
    const TimePoint until = hosts.clock + time;
    while (wake_at <= until) {
      hosts.clock = std::max(hosts.clock, wake_at);
      monitor->on_clock();
    }
    hosts.clock = until;
  }
  // The questions of that kind that hosts have got, by link.
  template <class Message>
  std::vector<std::pair<MembershipWorld::Link, Message>> asked() {
    std::vector<std::pair<MembershipWorld::Link, Message>> found;
    for (const auto& [link, messages] : hosts.sent) {
      for (const auto& message : messages) {
        if (const auto* is = std::get_if<Message>(&message)) found.emplace_back(link, *is);
      }
    }
    return found;
  }

  MembershipWorld hosts;
  std::optional<JobCore> job;
  TimePoint wake_at = kNever;
  std::vector<std::string> warnings, shown;
  std::vector<JobEvent> events;
  std::vector<JobCore::Event> fed;
  RankSet late_in_nccl;
  std::vector<int> ended_ranks;  // ranks, as the job learns of them
  RankStacks noted;
  std::optional<JobMonitor> monitor;

 private:
  TimePoint now() override { return hosts.clock; }
  void wake_monitor_at(TimePoint due) override { wake_at = due; }
  void feed(const JobCore::Event& event) override { fed.push_back(event); }
  void warn(const std::string& words) override { warnings.push_back(words); }
  void show(const std::string& line) override { shown.push_back(line); }
  void ended(Slot, const WorkerEnd& end) override { ended_ranks.push_back(end.rank); }
  void note_late_in_nccl(const NcclVerdict& its) override { late_in_nccl = its.ranks; }
  void note_stacks(int rank, const std::vector<std::string>& lines) override {
    noted[rank] = lines;
  }
  void happened(const JobEvent& event) override { events.push_back(event); }
  void measured(const StepTimes&) override {}
};

Plan monitored_plan() {
  Plan plan = membership_plan(3);
  plan.hang_timeout = 8s;
  plan.straggler = StragglerMode::off;
  return plan;
}

// Rank 4, on host c, does not come to all_reduce #17.
void miss_rank_4(MonitorWorld& world) {
  for (int rank = 0; rank < 6; ++rank) {
    NodeRank at{.rank = rank, .round = 1, .pid = 100 + rank};
    at.positions = {{.seq = rank == 4 ? 16U : 17U, .inside = rank != 4}};
    world.monitor->take(rank / 2, NodeSeen{{at}});
  }
}

}  // namespace

TEST_CASE("job monitor: warnings name the host of the worker") {
  MonitorWorld world(monitored_plan());
  miss_rank_4(world);
  world.pass(4s);
  REQUIRE(world.warnings.size() == 1);
  CHECK(world.warnings[0].starts_with("rank 4 has not entered all_reduce #17"));
  CHECK(world.warnings[0].ends_with("; rank 4 is on host c"));
}

TEST_CASE("job monitor: a rank is late once others have waited for it for 2 s") {
  MonitorWorld world(monitored_plan());
  miss_rank_4(world);
  world.pass(1s);
  CHECK(world.monitor->late().empty());
  world.pass(2s);
  const auto late = world.monitor->late();
  REQUIRE(late.size() == 1);
  CHECK(late[0].ranks == RankSet{4});
  CHECK(late[0].waiting == RankSet{0, 1, 2, 3, 5});
  CHECK(late[0].waited >= 2s);
  CHECK(late[0].text.starts_with("rank 4 has not entered all_reduce #17, where rank 0-3,5 are"));
  CHECK(late[0].text.ends_with(" s; rank 4 is on host c"));
  CHECK(world.monitor->waits().empty());  // too short for the report
}

TEST_CASE("job monitor: ranks that wait for each other in two groups are late once") {
  MonitorWorld world(monitored_plan());
  for (const int rank : {0, 1}) {
    NodeRank at{.rank = rank, .round = 1, .pid = 100 + rank};
    at.positions = {{.group = 1, .seq = rank == 0 ? 6U : 5U, .inside = rank == 0},
                    {.group = 2, .seq = rank == 0 ? 2U : 3U, .inside = rank == 1}};
    world.monitor->take(0, NodeSeen{{at}});
  }
  world.pass(3s);
  const auto late = world.monitor->late();
  REQUIRE(late.size() == 1);
  CHECK(late[0].ranks == RankSet{0, 1});
  CHECK(late[0].waiting == RankSet{0, 1});
}

// It may just compute: no rank waits for it in a collective.
TEST_CASE("job monitor: a rank without heartbeats is not late") {
  MonitorWorld world(monitored_plan());
  for (int rank = 0; rank < 6; ++rank) {
    NodeRank at{.rank = rank, .round = 1, .pid = 100 + rank, .moves = rank != 4, .beat = 0s};
    world.monitor->take(rank / 2, NodeSeen{{at}});
  }
  world.monitor->take(2, NodeSeen{{{.rank = 4, .round = 1, .pid = 104, .beat = 1s}}});
  world.pass(7s);
  REQUIRE_FALSE(world.warnings.empty());
  CHECK(world.warnings[0].starts_with("rank 4 has sent no heartbeat"));
  CHECK(world.monitor->late().empty());
}

TEST_CASE("job monitor: a worker that hangs is replaced once its stacks are there") {
  MonitorWorld world(monitored_plan());
  miss_rank_4(world);
  world.pass(7s);
  const auto dumps = world.asked<NodeDump>();
  REQUIRE(dumps.size() == 2);  // of the culprit, and of one that waits
  CHECK((dumps[0].first == NodeMembership::kOwnLink && dumps[0].second.slot == 0));
  CHECK((dumps[1].first == 2 && dumps[1].second.slot == 0));
  world.pass(2s);
  CHECK(world.asked<NodeHung>().empty());
  world.monitor->take(2, NodeStacks{dumps[1].second.request, 0, 104, {"frame"}});
  CHECK(world.shown == std::vector<std::string>{"dlaunch: stacks of rank 4 (pid 104 on host c):",
                                                "dlaunch:   frame"});
  CHECK(world.asked<NodeHung>().empty());
  world.monitor->take(0, NodeStacks{dumps[0].second.request, 0, 100, {}});
  CHECK(world.asked<NodeHung>().empty());
  for (const auto& [link, ask] : world.asked<NodeAskRecorder>()) {
    world.monitor->take(static_cast<int>(link), NodeRecorded{ask.request, {}});
  }
  const auto hung = world.asked<NodeHung>();
  REQUIRE(hung.size() == 1);
  CHECK((hung[0].first == 2 && hung[0].second.slot == 0 && hung[0].second.pid == 104));
  CHECK(hung[0].second.why.starts_with("rank 4 has not entered"));
  // The time until the stacks were there counts.
  const auto* finding = std::get_if<job_event::HangFinding>(&world.events.back());
  REQUIRE(finding);
  CHECK(finding->hung == 9s);
}

TEST_CASE("job monitor: a rank that ends while the next round is formed is not missed") {
  MonitorWorld world(monitored_plan());
  for (int rank = 0; rank < 6; ++rank) {
    NodeRank at{.rank = rank, .round = 1, .pid = 100 + rank};
    at.positions = {{.seq = rank == 5 ? 16U : 17U, .inside = rank != 5}};
    world.monitor->take(rank / 2, NodeSeen{{at}});
  }
  for (Slot slot = 0; slot < 6; ++slot) {
    (void)world.job->step(kStart, JobCore::Ready{.slot = slot, .left = 0});
  }
  (void)world.job->step(kStart, JobCore::Replace{1, FailureKind::hung});
  REQUIRE(world.job->rank_of(5) == 4);
  WorkerEnd end;
  end.rank = 5;
  world.monitor->ended(5, end);
  world.pass(20s);
  for (const auto& warning : world.warnings) CHECK_FALSE(warning.starts_with("rank 5 "));
}

TEST_CASE("job monitor: stacks that are still being read do not answer two looks") {
  MonitorWorld world(monitored_plan());
  for (int rank = 0; rank < 6; ++rank) {
    NodeRank at{.rank = rank, .round = 1, .pid = 100 + rank, .moves = rank != 4};
    at.quiet = rank == 4 ? 1ms : 0ms;
    world.monitor->take(rank / 2, NodeSeen{{at}});
  }
  world.pass(7s);
  CHECK(world.asked<NodeDump>().size() == 6);  // after three quarters of the time
  world.pass(2s);
  CHECK(world.asked<NodeDump>().size() == 6);  // at its end
}

TEST_CASE(
    "job monitor: before a job learns of a wait that was given up, all others are looked at") {
  MonitorWorld world(monitored_plan());
  const auto end = [](int rank, const char* words) {
    WorkerEnd worker;
    worker.rank = rank;
    worker.exit_code = 1;
    worker.stderr_tail = {words};
    return worker;
  };
  SUBCASE("and the job learns of it once they have answered") {
    world.monitor->ended(0, end(0, "Timed out waiting 3000ms for recv operation to complete"));
    const auto dumps = world.asked<NodeDump>();
    REQUIRE(dumps.size() == 5);
    CHECK(dumps[0].second.limit > 0s);
    CHECK(dumps[0].second.limit < kStackHold);
    CHECK(world.ended_ranks.empty());
    for (const auto& [link, dump] : dumps) {
      const int node = link == NodeMembership::kOwnLink ? 0 : link;
      world.monitor->take(node, NodeStacks{dump.request, dump.slot, 9, {"frame"}});
    }
    CHECK(world.ended_ranks.empty());
    const auto asks = world.asked<NodeAskRecorder>();
    REQUIRE(asks.size() == 5);
    for (std::size_t i = 0; i < asks.size(); ++i) {  // ranks 1 to 5
      CHECK(asks[i].second.in_haste);
      NodeRecorded recorded{.request = asks[i].second.request};
      if (i == 3) recorded.ras = {{.comm = 7, .ranks = 6, .enqueued = 41, .others = 42}};
      const int link = asks[i].first;
      world.monitor->take(link == NodeMembership::kOwnLink ? 0 : link, recorded);
    }
    CHECK(world.ended_ranks == std::vector<int>{0});
    CHECK(world.late_in_nccl == RankSet{4});
    CHECK(world.noted.size() == 5);
    CHECK(world.noted.at(4) == std::vector<std::string>{"frame"});
  }
  SUBCASE("or after its time to answer") {
    world.monitor->ended(0, end(0, "Timed out waiting 3000ms for recv operation to complete"));
    world.pass(kStackHold - 100ms);
    CHECK(world.ended_ranks.empty());
    world.pass(200ms);
    CHECK(world.ended_ranks == std::vector<int>{0});
  }
  SUBCASE("but at once if something else happens to the job") {
    world.monitor->ended(0, end(0, "Timed out waiting 3000ms for recv operation to complete"));
    world.monitor->let_ends_pass();
    CHECK(world.ended_ranks == std::vector<int>{0});
  }
  SUBCASE("and at once if the failure is a cause") {
    world.monitor->ended(0, end(0, "ValueError: bad batch"));
    CHECK(world.ended_ranks == std::vector<int>{0});
    CHECK(world.asked<NodeDump>().empty());
  }
}

TEST_CASE("job monitor: the loss of a host ends the wait for its stacks") {
  MonitorWorld world(monitored_plan());
  std::vector<std::string> lines;
  world.monitor->dump(2, [&](int, const auto& stacks) { lines = stacks; });
  CHECK(world.asked<NodeDump>().at(0).first == 1);
  world.monitor->lost_host(1);
  const std::vector<std::string> never = {"its host was lost before it answered"};
  CHECK(lines == never);
  world.hosts.goes(1);
  lines.clear();
  world.monitor->dump(3, [&](int, const auto& stacks) { lines = stacks; });
  CHECK(lines == never);
}

TEST_CASE("job monitor: a traceback is reported with the ranks that wait, and its end") {
  MonitorWorld world(monitored_plan());
  miss_rank_4(world);
  world.pass(1s);
  world.monitor->take(2, NodeThrew{.slot = 0, .pid = 104, .threw = kStart - 4s});
  REQUIRE(world.warnings.size() == 1);
  CHECK(world.warnings[0] ==
        "rank 4 printed a traceback 5 s ago and still runs; ranks 0, 1, 2, 3, 5 wait; 'dlaunchctl "
        "stacks 4' shows what it does; rank 4 is on host c");
  world.monitor->take(2, NodeThrew{.slot = 0, .pid = 104, .over = true});
  CHECK(world.warnings.back() == "rank 4 continues after its traceback; rank 4 is on host c");
  // A spare, or a slot that does not exist.
  world.monitor->take(2, NodeThrew{.slot = 7});
  CHECK(world.warnings.size() == 2);
}

TEST_CASE("job monitor: a survey asks the hosts that are here, and waits a second at the most") {
  MonitorWorld world(monitored_plan());
  std::optional<std::map<Slot, NodeWorker>> got;
  world.monitor->survey(true, [&](const auto& workers) { got = workers; });
  const auto asked = world.asked<NodeSurvey>();
  REQUIRE(asked.size() == 3);
  CHECK(asked[2].second.gpus);
  const auto request = asked[0].second.request;
  world.monitor->take(1, NodeWorkers{request, {{.slot = 1, .pid = 7}, {.slot = 9}}});
  world.pass(900ms);
  CHECK_FALSE(got);
  world.pass(100ms);
  REQUIRE(got);
  REQUIRE(got->size() == 1);
  CHECK(got->at(3).pid == 7);

  world.hosts.sent.clear();
  world.hosts.goes(1);
  world.monitor->survey(false, [](const auto&) {});
  CHECK(world.asked<NodeSurvey>().size() == 2);
}

TEST_CASE("job monitor: chaos observes the workers, and harms one on its host") {
  Plan plan = monitored_plan();
  plan.hang_timeout = plan.hang_warning = Duration::max();
  plan.chaos = ChaosConfig{.kill = {.every = 5s}};
  MonitorWorld world(plan);
  for (int second = 0; second < 20; ++second) {
    world.pass(1s);
    for (const auto& [link, survey] : world.asked<NodeSurvey>()) {
      NodeWorkers all{.request = survey.request, .workers = {{.slot = 0}, {.slot = 1}}};
      for (auto& worker : all.workers) worker.in_ring = true;
      world.monitor->take(static_cast<int>(link), all);
    }
  }
  const auto hurt = world.asked<NodeInject>();
  REQUIRE(hurt.size() > 1);
  CHECK(hurt.size() < 10);
  for (const auto& [link, inject] : hurt) {
    CHECK(inject.signal == SIGKILL);
    CHECK((inject.slot == 0 || inject.slot == 1));
  }
  world.monitor->stop();
  CHECK(world.wake_at == kNever);
}

TEST_CASE("job monitor: with nothing to watch for it never wakes") {
  Plan plan = monitored_plan();
  plan.hang_timeout = plan.hang_warning = Duration::max();
  CHECK(MonitorWorld(plan).wake_at == kNever);
}
