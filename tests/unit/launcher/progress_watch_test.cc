// The leader's conclusions from the progress that hosts report.
#include "launcher/lead/monitor/progress_watch.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Lines = std::vector<std::string>;

// A watch in round 1, whose effects are written down. Rank r runs on node r, with the pid 100 + r.
class WatchWorld final : private ProgressWatch::Effects {
 public:
  explicit WatchWorld(const ProgressWatch::Options& options, int ranks = 2)
      : watch(options, *this) {
    for (int node = 0; node < ranks; ++node) heard.insert(node);
    watch.new_round(1, {.ranks = ranks, .nodes = ranks}, std::nullopt);
  }

  static NodeRank at(int rank, std::uint64_t seq, bool inside) {
    NodeRank found{.rank = rank, .round = 1, .pid = 100 + rank};
    found.positions = {{.seq = seq, .inside = inside}};
    return found;
  }
  void sees(const NodeRank& rank) { watch.take(rank.rank, NodeSeen{{rank}}); }
  // Rank 0 waits in all_reduce #17, rank 1 does not come.
  void one_missing() {
    sees(at(0, 17, true));
    sees(at(1, 16, false));
  }
  void pass(Duration time) {
    const TimePoint until = clock + time;
    while (watch.deadline() && *watch.deadline() <= until) {
      clock = std::max(clock, *watch.deadline());
      watch.on_clock();
    }
    clock = until;
  }
  Lines take_log() { return std::exchange(log, {}); }

  TimePoint clock = kStart;
  std::set<int> heard;
  Lines log;
  std::vector<JobEvent> events;
  int steps = 0;
  bool tasks = false;
  std::vector<std::pair<int, NodeMessage>> asked;
  ProgressWatch watch;

 private:
  TimePoint now() override { return clock; }
  void happened(const JobEvent& event) override { events.push_back(event); }
  void measured(const StepTimes& step) override { steps += step.steps; }
  void warn(const RankSet& ranks, const std::string& sentence) override {
    log.push_back(fmt::format("warn {}: {}", format_rank_set(ranks), sentence));
  }
  void dump(const RankSet& ranks) override { log.push_back("dump " + format_rank_set(ranks)); }
  void replace_hung(const HangJudge::Replace& hang) override {
    log.push_back(fmt::format("replace {}: {}", format_rank_set(hang.ranks), hang.sentence));
  }
  void replace_if_others_wait(const HangJudge::Check& check) override {
    log.push_back(fmt::format("check {}, busy {}: {}", format_rank_set(check.quiet),
                              format_rank_set(check.busy), check.sentence));
  }
  void replace_slow(int rank, const std::string& why, bool leaves) override {
    log.push_back(fmt::format("{} {}: {}", leaves ? "evict" : "slow", rank, why));
  }
  std::set<int> nodes() override { return heard; }
  bool is_heard(int node) override { return heard.contains(node); }
  bool are_tasks() override { return tasks; }
  void ask(int node, const NodeMessage& question) override { asked.emplace_back(node, question); }
};

ProgressWatch::Options hangs_after(Duration time) {
  ProgressWatch::Options options{.hang_timeout = time};
  options.stragglers.mode = StragglerMode::off;
  return options;
}

const std::string kMissing = "rank 1 has not entered all_reduce #17, where rank 0 is waiting";

}  // namespace

TEST_CASE("progress watch: one report of a rank that stands still is enough") {
  WatchWorld world(hangs_after(8s));
  CHECK(world.watch.deadline() == kStart + 200ms);
  world.one_missing();
  world.pass(3800ms);
  CHECK(world.log.empty());
  world.pass(20s);
  const Lines log = world.take_log();
  REQUIRE(log.size() == 3);
  CHECK(log[0] == "warn 1: " + kMissing + ", for 4 s now; it is replaced after 8 s");
  CHECK(log[1] == "dump 0-1");
  CHECK(log[2] == "replace 1: " + kMissing + ", for 8 s");
  CHECK(world.watch.pid_of(1) == 101);
  CHECK(world.watch.waiting_for(1) == RankSet{0});
}

TEST_CASE("progress watch: the time that a host saw a rank stand still counts") {
  WatchWorld world(hangs_after(8s));
  world.one_missing();
  NodeRank late = WatchWorld::at(0, 17, true);
  late.positions[0].still = 3s;
  world.sees(late);
  late = WatchWorld::at(1, 16, false);
  late.positions[0].still = 3s;
  world.sees(late);
  world.pass(1200ms);
  REQUIRE(world.log.size() == 1);
  CHECK(world.log[0].starts_with("warn 1: " + kMissing));
}

TEST_CASE("progress watch: a rank that moves again ends the wait") {
  WatchWorld world(hangs_after(8s));
  world.one_missing();
  world.pass(5s);
  CHECK(world.take_log().size() == 1);
  NodeRank moves{.rank = 1, .round = 1, .pid = 101, .moves = true};
  world.sees(moves);
  world.sees(WatchWorld::at(0, 17, false));
  world.pass(200ms);
  CHECK(world.take_log() == Lines{"warn 1: " + kMissing + ": this is over"});
  world.pass(4s);
  CHECK(world.log.empty());
}

TEST_CASE("progress watch: a rank of a later round is watched if the ranks are tasks") {
  WatchWorld world(hangs_after(8s));
  SUBCASE("they are") { world.tasks = true; }
  SUBCASE("they are not: the others have not left their round") {}
  world.sees({.rank = 0, .round = 1, .pid = 100, .moves = true, .beat = 0s});
  NodeRank beats{.rank = 1, .round = 2, .pid = 201, .moves = true, .beat = 0s};
  world.sees(beats);
  world.pass(1s);
  beats.beat = 1s;
  world.sees(beats);
  world.pass(20s);
  REQUIRE(world.log.empty() != world.tasks);
  if (world.tasks) CHECK(world.log.back().starts_with("replace 1: rank 1 has sent no heartbeat"));
}

TEST_CASE("progress watch: the heartbeats that one rank no longer sends") {
  WatchWorld world(hangs_after(8s));
  NodeRank beats{.rank = 0, .round = 1, .pid = 100, .moves = true, .beat = 0s};
  world.sees(beats);
  beats.rank = 1;
  beats.pid = 101;
  world.sees(beats);
  world.pass(20s);
  CHECK(world.log.empty());
  beats.beat = 1s;
  world.sees(beats);
  world.pass(2800ms);
  CHECK(world.log.empty());
  world.pass(20s);
  REQUIRE(world.log.size() == 3);
  CHECK(world.log[0].starts_with("warn 1: rank 1 has sent no heartbeat, for 4 s now"));
  CHECK(world.log[2] == "replace 1: rank 1 has sent no heartbeat, for 8 s");
}

TEST_CASE(
    "progress watch: one warning names the signs, and quiet ranks beside busy ones give a check") {
  WatchWorld world(hangs_after(8s));
  NodeRank seen{.rank = 0, .round = 1, .pid = 100, .moves = true, .quiet = 0s};
  world.sees(seen);
  seen.rank = 1;
  seen.pid = 101;
  world.sees(seen);
  world.pass(3800ms);
  CHECK(world.log.empty());
  world.pass(1s);
  REQUIRE(world.log.size() == 1);
  CHECK(world.take_log()[0].starts_with("warn : --hang-timeout watches only the workers' output"));
  seen.quiet = 1s;
  world.sees(seen);
  world.pass(8s);
  REQUIRE(world.log.size() == 2);
  CHECK(world.log[1].starts_with("check 1, busy 0: rank 1 has neither written output nor used"));
}

TEST_CASE("progress watch: a program that sends heartbeats gives no such warning") {
  WatchWorld world(hangs_after(8s));
  world.sees({.rank = 0, .round = 1, .pid = 100, .moves = true, .quiet = 0s});
  world.sees({.rank = 1, .round = 1, .pid = 101, .moves = true, .beat = 0s});
  world.pass(20s);
  CHECK(world.log.empty());
}

TEST_CASE("progress watch: while a host is silent no rank is replaced") {
  WatchWorld world(hangs_after(8s));
  world.one_missing();
  world.pass(1s);
  world.heard = {0};
  world.pass(60s);
  CHECK(world.log.empty());
  CHECK(world.watch.waits(0s).empty());
  world.heard = {0, 1};
  world.pass(9s);
  REQUIRE_FALSE(world.log.empty());
  CHECK(world.log.back().starts_with("replace 1: " + kMissing));
}

TEST_CASE("progress watch: a stopped rank is reported at once") {
  WatchWorld world(hangs_after(8s));
  world.one_missing();
  NodeRank stopped = WatchWorld::at(1, 16, false);
  stopped.state = ProcessState::stopped;
  world.sees(stopped);
  REQUIRE(world.log.size() == 1);
  CHECK(world.log[0].starts_with("warn 1: rank 1 is stopped"));

  // Not if the user stops all.
  WatchWorld suspended(hangs_after(8s));
  suspended.one_missing();
  suspended.watch.suspend(true);
  suspended.sees(stopped);
  suspended.pass(60s);
  CHECK(suspended.log.empty());
}

TEST_CASE("progress watch: a rank that waits for the next round hangs in none") {
  WatchWorld world(hangs_after(8s));
  world.one_missing();
  NodeRank left{.rank = 1, .round = 1, .pid = 7, .left = true};
  world.sees(left);  // an earlier process of that rank
  CHECK(world.watch.pid_of(1) == 101);
  left.pid = 101;
  world.sees(left);
  CHECK(world.watch.pid_of(1) == 0);

  // Nor one whose host is lost, or whose process has ended.
  world.one_missing();
  world.watch.lost(1);
  CHECK(world.watch.pid_of(1) == 0);
  CHECK(world.watch.pid_of(0) == 100);
  world.watch.gone(0);
  world.pass(60s);
  CHECK(world.log.empty());
}

TEST_CASE("progress watch: what was seen in an earlier round is over") {
  WatchWorld world(hangs_after(8s));
  world.one_missing();
  world.watch.new_round(2, {.ranks = 2}, 1s);
  world.one_missing();  // of round 1
  world.pass(60s);
  CHECK(world.log.empty());
  CHECK(world.watch.pid_of(0) == 0);
}

TEST_CASE("progress watch: waits are known from the length that the caller names") {
  WatchWorld world({.hang_warning = 60s, .stragglers = {.mode = StragglerMode::off}});
  world.one_missing();
  world.pass(9s);
  CHECK(world.watch.waits(10s).empty());
  CHECK(world.watch.waits(2s).size() == 1);
  world.pass(2s);
  const auto waits = world.watch.waits(10s);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].key.culprits == RankSet{1});
  CHECK(waits[0].waiting == RankSet{0});
}

TEST_CASE("progress watch: it asks for the times of the collectives that all hosts know") {
  ProgressWatch::Options options;
  options.stragglers.mode = StragglerMode::warn;
  options.stragglers.detection.window_time = 5s;
  WatchWorld world(options);
  CHECK(world.watch.deadline() == kStart + 500ms);
  world.pass(500ms);
  REQUIRE(world.asked.size() == 2);
  CHECK((world.asked[0].first == 0 && world.asked[1].first == 1));
  const auto look = std::get<NodeLook>(world.asked[1].second);
  world.asked.clear();
  world.watch.take(0, NodeSpans{look.look, 1, 20});
  CHECK(world.asked.empty());
  world.watch.take(1, NodeSpans{look.look, 1, 18});
  REQUIRE(world.asked.size() == 2);
  CHECK(std::get<NodeCut>(world.asked[0].second).last == 18);
  world.asked.clear();
  world.watch.stop();
  CHECK_FALSE(world.watch.deadline());
  world.watch.take(0, NodeSpans{look.look, 18, 40});
  world.watch.take(1, NodeSpans{look.look, 18, 40});
  world.one_missing();
  CHECK(world.asked.empty());
}

TEST_CASE("progress watch: a host that answers after several intervals is heard") {
  ProgressWatch::Options options = hangs_after(8s);
  options.stragglers.mode = StragglerMode::warn;
  WatchWorld world(options);
  world.pass(200ms);
  REQUIRE(world.asked.size() == 2);
  const auto look = std::get<NodeLook>(world.asked[1].second);
  world.asked.clear();
  world.watch.take(0, NodeSpans{look.look, 1, 20});
  world.pass(700ms);
  CHECK(world.asked.empty());
  world.watch.take(1, NodeSpans{look.look, 1, 18});
  REQUIRE(world.asked.size() == 2);
  CHECK(std::get<NodeCut>(world.asked[0].second).last == 18);
  world.asked.clear();
  const NodeRankTimes times{.rank = 0, .entered = world.clock, .in_op = 1ms, .step = 2ms};
  world.watch.take(0, NodeTimes{look.look, {times}, {}});
  world.pass(700ms);
  CHECK(world.asked.empty());
  NodeRankTimes other = times;
  other.rank = 1;
  world.watch.take(1, NodeTimes{look.look, {other}, {}});
  CHECK(world.steps > 0);
  world.pass(200ms);
  CHECK(world.asked.size() == 2);  // the next look
  // A host that does not answer is asked again.
  world.asked.clear();
  world.pass(1800ms);
  CHECK(world.asked.empty());
  world.pass(200ms);
  CHECK(world.asked.size() == 2);
}

TEST_CASE("progress watch: the end of a task is no news for another task that hangs") {
  WatchWorld world(hangs_after(8s), 3);
  world.tasks = true;
  for (int rank = 0; rank < 3; ++rank) {
    const Duration beat = rank == 1 ? 1ms : 0ms;  // 0: a new one each time
    world.sees({.rank = rank, .round = 1, .pid = 100 + rank, .moves = rank != 1, .beat = beat});
  }
  world.pass(5s);
  CHECK(world.take_log().size() == 1);  // the warning
  world.watch.gone(2);
  world.pass(2900ms);
  world.take_log();  // the dump
  world.pass(200ms);
  const Lines log = world.take_log();
  REQUIRE(log.size() == 1);
  CHECK(log[0].starts_with("replace 1: "));
}

TEST_CASE("progress watch: tasks that were replaced together are reported once") {
  WatchWorld world(hangs_after(8s), 4);
  world.tasks = true;
  for (int rank = 0; rank < 4; ++rank) {
    const Duration beat = rank < 3 ? 1ms : 0ms;
    world.sees({.rank = rank, .round = 1, .pid = 100 + rank, .moves = rank == 3, .beat = beat});
  }
  world.pass(8100ms);
  const Lines log = world.take_log();
  REQUIRE_FALSE(log.empty());
  CHECK(log.back().starts_with("replace 0-2: "));
  world.watch.gone(0);
  world.pass(1s);
  world.watch.gone(1);
  world.pass(5s);
  CHECK(world.log.empty());
}

TEST_CASE("progress watch: a quiet task has its whole time after the end of the last busy one") {
  WatchWorld world(hangs_after(8s));
  world.tasks = true;
  world.sees({.rank = 0, .round = 1, .pid = 100, .moves = false, .quiet = 1ms});
  world.sees({.rank = 1, .round = 1, .pid = 101, .quiet = 0ms});
  world.pass(100s);
  for (const auto& line : world.take_log()) CHECK_FALSE(line.starts_with("replace"));
  world.watch.gone(1);
  world.pass(3900ms);
  CHECK(world.take_log().empty());
  world.pass(4200ms);
  CHECK(world.log.back().starts_with("replace 0: "));
}

TEST_CASE("progress watch: with nothing to watch for it never wakes") {
  WatchWorld world({.stragglers = {.mode = StragglerMode::off}});
  CHECK_FALSE(world.watch.deadline());
  // The shorter of both intervals.
  ProgressWatch::Options both = hangs_after(8s);
  both.stragglers.mode = StragglerMode::warn;
  CHECK(WatchWorld(both).watch.deadline() == kStart + 200ms);
}
