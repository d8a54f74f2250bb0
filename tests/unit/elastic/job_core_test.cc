#include "elastic/job_core.h"

#include <signal.h>

#include <doctest/doctest.h>

#include "tests/unit/elastic/job_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("a job whose workers all end well succeeds") {
  for (const bool elastic : {false, true}) {
    JobWorld world(of(3), elastic);
    CHECK(world.core.state() == JobState::active);
    for (Slot slot = 0; slot < 3; ++slot) world.succeed(slot);
    REQUIRE(world.finish);
    CHECK(world.finish->end == JobEnding::succeeded);
    CHECK(world.announced == (elastic ? std::vector<int>{1} : std::vector<int>{}));
  }
}

TEST_CASE("without restarts the first failure ends the job, and the others are stopped") {
  JobWorld world(of(3), false);
  world.fail(1);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
  CHECK(world.stopped == Slots{0, 2});
}

TEST_CASE("plain programs are started again all together, once the last of them has gone") {
  JobWorld world(of(3, 1), false);
  world.stubborn = {0};
  world.fail(1);
  CHECK(world.starts == 3);
  world.stubborn.clear();
  world.running.erase(0);
  world.feed(JobCore::Ended{0, false});
  CHECK(world.starts == 6);
  CHECK(world.core.round() == 2);
  CHECK(world.core.restarts_used() == 1);
  world.fail(2);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
}

TEST_CASE("a job that continues one whose hosts are all gone has its remaining restarts") {
  JobConfig config = of(2, 3);
  config.first_round = 8;
  config.before = {.restarts_used = 2, .restarts_left = 1};
  JobWorld world(config, false);
  CHECK(world.core.round() == 8);
  CHECK(world.core.restarts_used() == 2);
  world.fail(1);
  CHECK(world.core.round() == 9);
  CHECK(world.core.restarts_used() == 3);
  world.fail(1);
  REQUIRE(world.finish);
  CHECK(world.finish->why == "all 3 restarts (--max-restarts) are used");
}

TEST_CASE("a worker that SIGTERM ends just before its job does not count for the next job") {
  for (const int code : {SIGTERM, SIGSEGV}) {
    JobWorld world(of(2, 3), false);
    world.fail(0);
    world.running.erase(1);
    world.feed(JobCore::Ended{
        .slot = 1, .well = false, .kind = FailureKind::signal, .code = code, .signature = 7});
    CHECK(world.core.record().restarts_used == 2);
    const auto left = JobCore::left_of(world.core.record());
    CHECK(left.restarts_used == (code == SIGTERM ? 1 : 2));
    CHECK(left.restarts_left == (code == SIGTERM ? 2 : 1));
    world.feed(JobCore::Signal{SIGTERM});
    CHECK(JobCore::left_of(world.core.record()).restarts_used == left.restarts_used);
  }
}

TEST_CASE("of an elastic job only the lost worker is replaced, and takes the lost rank") {
  JobWorld world(of(4, 3));
  CHECK(world.roster == Slots{0, 1, 2, 3});
  world.fail(2);
  CHECK(world.stopped.empty());
  CHECK(world.fences == std::vector<int>{2});
  CHECK(world.running.at(2) == 2);
  CHECK(world.core.waits_for() ==
        "rank 0 to leave its round, rank 1 to leave its round, rank 3 to "
        "leave its round");
  world.rejoin_all();
  CHECK(world.announced == std::vector<int>{1, 2});
  CHECK(world.roster == Slots{0, 1, 2, 3});
  CHECK(world.core.waits_for().empty());
}

TEST_CASE("the survivors learn of a loss before the replacement is started") {
  JobWorld world(of(3, 5));
  world.running.erase(1);
  world.feed_now(JobCore::Ended{1, false});
  CHECK(world.fences == std::vector<int>{2});
  CHECK_FALSE(world.running.contains(1));
  REQUIRE(world.core.deadline());
  CHECK(*world.core.deadline() <= world.now + 5ms);
  world.now = *world.core.deadline();
  world.feed_now(JobCore::Clock{});
  CHECK(world.running.contains(1));
}

TEST_CASE("a spare takes the lost rank, and a new spare starts") {
  JobWorld world(of(3, 5, 1));
  CHECK(world.running.at(3) == -1);
  world.fail(1);
  world.rejoin(0);
  world.rejoin(2);
  CHECK(world.roster == Slots{0, 3, 2});
  CHECK_FALSE(world.running.contains(1));  // not while the others need the cores
  REQUIRE(world.core.deadline());
  world.now = *world.core.deadline();
  world.feed(JobCore::Clock{});
  CHECK(world.running.at(1) == -1);
  world.fail(3);
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2});
  CHECK(world.announced == std::vector<int>{1, 2, 3});
  CHECK(world.core.restarts_used() == 2);
}

TEST_CASE("a spare is started once the program is known to be elastic") {
  JobWorld world(of(2, 1, 1), false);
  CHECK(world.starts == 2);
  world.feed(JobCore::Ready{1, 0});
  CHECK(world.running.at(2) == -1);
}

TEST_CASE("a second loss while a round forms burns its number") {
  JobWorld world(of(4, 5));
  world.mute = {1};
  world.fail(1);
  world.rejoin_all();
  CHECK(world.announced == std::vector<int>{1});
  world.mute = {};
  world.fail(1);
  world.now += 1s;  // not at once again
  world.feed(JobCore::Clock{});
  CHECK(world.announced == std::vector<int>{1, 3});
  CHECK(world.core.restarts_used() == 2);
}

TEST_CASE("a survivor that fails because of the loss costs no restart of its own") {
  JobWorld world(of(3, 1));
  world.fail(0);
  world.fail(1, true);
  world.rejoin_all();
  CHECK(world.announced == std::vector<int>{1, 3});
  CHECK(world.core.restarts_used() == 1);
  // Without a loss before it, it is the loss.
  world.fail(2, true);
  CHECK(world.finish.has_value());
}

TEST_CASE("a member that leaves a healthy round takes all of them to the next one") {
  JobWorld world(of(3, 1));
  world.rejoin(1);
  CHECK(world.fences == std::vector<int>{2});
  world.rejoin(0);
  CHECK(world.announced == std::vector<int>{1});
  world.rejoin(2);
  CHECK(world.announced == std::vector<int>{1, 2});
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("rounds that members give up although none failed end with the restarts") {
  const auto give_up = [](JobWorld& world, std::uint64_t version) {
    for (const Slot slot : {0, 1, 2}) {
      world.feed(
          JobCore::Ready{slot, world.left[slot], version, slot == 1 ? "" : "it stands still"});
    }
  };
  JobWorld world(of(3, 2));
  give_up(world, 0);
  world.now += 2min;  // later than seconds after its start
  give_up(world, 0);
  CHECK(world.announced == std::vector<int>{1, 2, 3});
  CHECK(world.core.restarts_used() == 2);
  CHECK_FALSE(world.finish);
  give_up(world, 4);  // something was committed
  CHECK(world.announced.back() == 4);
  give_up(world, 4);
  REQUIRE(world.stopped == Slots{0, 1, 2});
  for (const Slot slot : {0, 1, 2}) world.feed(JobCore::Ended{slot, false});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::given_up);
  CHECK(world.finish->given_up == "it stands still");
  CHECK(world.finish->why == "all 2 restarts (--max-restarts) are used");
  CHECK(world.finish->ended_by == "--max-restarts");
  CHECK(world.announced.back() == 4);
}

TEST_CASE("each round with different results costs a restart, also after a commit") {
  JobWorld world(of(2, 2));
  const auto differ = [&](std::uint64_t version) {
    for (const Slot slot : {0, 1}) {
      world.feed(JobCore::Ready{slot, world.left[slot], version, "they differ", true});
    }
  };
  differ(1);
  CHECK(world.core.restarts_used() == 1);
  differ(2);
  CHECK(world.core.restarts_used() == 2);
  CHECK(world.announced == std::vector<int>{1, 2, 3});
  differ(3);
  for (const Slot slot : {0, 1}) world.feed(JobCore::Ended{slot, false});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::given_up);
  CHECK(world.finish->corrupt);
  CHECK(world.finish->given_up == "they differ");
  CHECK(world.finish->ended_by == "--max-restarts");
}

TEST_CASE("different results are not the same failure, however often they come") {
  JobWorld world(of(2, 9));
  for (int round = 1; round < 6; ++round) {
    world.now += 20s;
    for (const Slot slot : {0, 1}) {
      world.feed(JobCore::Ready{slot, round, 0, "they differ", true});
    }
  }
  CHECK_FALSE(world.finish);
  CHECK(world.core.restarts_used() == 5);
}

TEST_CASE("different results in a group count, and explain the other members' words") {
  JobWorld world(of(3, 0));
  world.feed(JobCore::Ready{0, 1, 0, "they differ", true});
  world.feed(JobCore::Ready{1, 1, 0, "zzz: the round is over"});
  world.feed(JobCore::Ready{2, 1});
  for (const Slot slot : {0, 1, 2}) world.feed(JobCore::Ended{slot, false});
  REQUIRE(world.finish);
  CHECK(world.finish->corrupt);
  CHECK(world.finish->given_up == "they differ");
  // With the loss of a member they are one failure.
  JobWorld lost(of(3, 1));
  lost.feed(JobCore::Ready{0, 1, 0, "they differ", true});
  lost.fail(1);
  lost.feed(JobCore::Ready{2, 1, 0, "they differ", true});
  CHECK(lost.announced.size() == 2);
  CHECK(lost.core.restarts_used() == 1);
  lost.feed(JobCore::Ready{0, lost.left[0], 0, "it stands still"});
  for (const Slot slot : {1, 2}) lost.rejoin(slot);
  REQUIRE_FALSE(lost.stopped.empty());
  for (const Slot slot : {0, 1, 2}) lost.feed(JobCore::Ended{slot, false});
  REQUIRE(lost.finish);
  CHECK_FALSE(lost.finish->corrupt);  // that was in an earlier round
}

TEST_CASE("a round that is given up because of a lost member counts once") {
  for (const bool first : {true, false}) {
    JobWorld world(of(3, 1));
    if (first) world.feed(JobCore::Ready{0, 1, 0, "it stands still"});
    world.fail(2);
    if (!first) world.feed(JobCore::Ready{0, 1, 0, "it stands still"});
    world.feed(JobCore::Ready{1, 1, 0, "it stands still"});
    CHECK(world.announced.size() == 2);
    CHECK(world.core.restarts_used() == 1);
    CHECK_FALSE(world.finish);
  }
}

TEST_CASE("a loss and the reports of survivors, in any order, do not hide the next loss") {
  JobWorld world(of(3, 10));
  world.feed(JobCore::Ready{0, 1, 10});  // it has noticed before the launcher
  world.fail(2);
  world.feed(JobCore::Ready{1, 1, 10});
  REQUIRE(world.announced.size() == 2);
  world.fail(2);
  CHECK(world.running.contains(2));  // at once: ten steps lie between the two
}

TEST_CASE("restarts without a commit do not end a job: only their number does") {
  for (const bool has_committed : {false, true}) {
    CAPTURE(has_committed);
    JobWorld world(of(2, 10));
    if (has_committed) world.feed(JobCore::Progress{0, 5});
    for (int failures = 1; failures <= 10; ++failures) {
      world.running.erase(1);
      world.left.erase(1);
      world.feed(JobCore::Ended{.slot = 1,
                                .well = false,
                                .kind = FailureKind::signal,
                                .code = SIGKILL,
                                .signature = 7,
                                .exact = 7});
      world.now += 61s;
      world.feed(JobCore::Clock{});
      world.rejoin_all();
      REQUIRE_FALSE(world.finish);
      CHECK(world.core.restarts_used() == failures);
    }
    world.fail(1);
    REQUIRE(world.finish);
    CHECK(world.finish->ended_by == "--max-restarts");
  }
}

TEST_CASE("the same failure soon after the same commit ends a job, a late one does not") {
  const auto fail = [](JobWorld& world) {
    REQUIRE(world.running.erase(1) == 1);
    world.left.erase(1);
    world.feed(JobCore::Ended{.slot = 1, .well = false, .signature = 7, .exact = 7, .ran = 1h});
  };
  const auto go_on = [](JobWorld& world, Duration how_long) {
    world.rejoin_all();
    world.now += 2s;
    world.feed(JobCore::Clock{});
    world.now += how_long;
    REQUIRE_FALSE(world.finish);
  };
  JobWorld world(of(2, 10));
  world.feed(JobCore::Progress{0, 5});
  fail(world);
  go_on(world, 10min);
  fail(world);  // long after the commit, and after its round began: at another step
  go_on(world, 10s);
  fail(world);
  REQUIRE(world.finish);
  CHECK(
      world.finish->why.starts_with("the same failure as in round 1, also within a minute after "
                                    "commit 5"));
  CHECK(world.finish->ended_by == "--same-failure-limit");
}

TEST_CASE("reports of an older round are ignored") {
  JobWorld world(of(2, 5));
  world.fail(0);
  world.rejoin(1);
  REQUIRE(world.announced == std::vector<int>{1, 2});
  world.feed(JobCore::Ready{1, 1});
  CHECK(world.core.state() == JobState::active);
  CHECK(world.announced == std::vector<int>{1, 2});
}

TEST_CASE("without restarts the job continues with fewer workers, down to the least") {
  JobConfig config = of(4);
  config.min_size = 3;
  JobWorld world(config);
  world.fail(1);
  CHECK_FALSE(world.finish);
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 2, 3});
  world.fail(0);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
}

TEST_CASE("a worker that is judged to hang is killed and replaced") {
  JobWorld world(of(3, 1));
  world.feed(JobCore::Replace{1});
  CHECK(world.stopped == Slots{1});
  CHECK(world.running.contains(1));
  world.rejoin_all();
  CHECK(world.announced == std::vector<int>{1, 2});
}

TEST_CASE("where no restart is left, a worker that hangs ends the job") {
  JobWorld world(of(3));
  world.feed(JobCore::Replace{1});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
}

TEST_CASE("a newcomer that does not come in time is replaced, a survivor that computes is not") {
  JobConfig config = of(3, 2);
  config.join_timeout = 60s;
  JobWorld world(config);
  world.mute = {1};
  world.fail(1);
  world.now += 100s;
  world.feed(JobCore::Clock{});
  CHECK(world.stopped.empty());  // nobody has waited for it yet
  world.rejoin(0);
  REQUIRE(world.core.deadline());
  CHECK(*world.core.deadline() <= world.now);
  world.mute = {};
  world.feed(JobCore::Clock{});
  CHECK(world.stopped == Slots{1});
  world.now += 100s;
  world.feed(JobCore::Clock{});
  CHECK(world.stopped == Slots{1});
  world.rejoin(2);
  CHECK(world.announced.size() == 2);
}

TEST_CASE("a process with corrupt data that does not end is replaced") {
  JobWorld world(of(4, 2));
  const auto accuse = [&](Slot slot, int rank) {
    world.feed(JobCore::Ready{slot, world.left[slot], 0, "", true, rank});
  };
  accuse(0, 2);
  CHECK_FALSE(world.core.deadline());  // one member alone may be wrong
  accuse(0, 2);
  CHECK_FALSE(world.core.deadline());
  accuse(3, 2);
  accuse(1, 7);  // no member
  REQUIRE(world.core.deadline());
  CHECK(*world.core.deadline() == world.now + kCorruptEnds);
  world.now += kCorruptEnds - 1s;
  world.feed(JobCore::Clock{});
  CHECK(world.stopped.empty());
  world.now += 1s;
  world.feed(JobCore::Clock{});
  CHECK(world.stopped == Slots{2});
  CHECK(world.signals == std::set<int>{SIGKILL});
  CHECK(world.core.restarts_used() == 1);
  CHECK(world.running.contains(2));
  CHECK(world.announced.size() == 2);
  CHECK_FALSE(world.core.deadline());
}

TEST_CASE("the next leader knows who was accused of corrupt data") {
  JobWorld first(of(4, 2));
  first.feed(JobCore::Ready{0, 1, 0, "", true, 2});
  CHECK_FALSE(first.core.accused(2));
  JobWorld world(of(4, 2), first);
  CHECK_FALSE(world.core.accused(2));
  world.feed(JobCore::Ready{3, 1, 0, "", true, 2});
  CHECK(world.core.accused(2));
  REQUIRE(world.core.deadline());
  world.now += kCorruptEnds;
  world.feed(JobCore::Clock{});
  CHECK(world.stopped == Slots{2});
}

TEST_CASE("a process with corrupt data that ends by itself, or asks for a round, is not killed") {
  JobWorld world(of(3, 2));
  for (const Slot slot : {0, 1}) {
    world.feed(JobCore::Ready{slot, 1, 0, "", true, 2});
  }
  SUBCASE("it ends, and its successor is slow") {
    world.mute = {2};
    world.running.erase(2);
    world.feed(JobCore::Ended{.slot = 2, .well = false, .kind = FailureKind::corrupt});
    REQUIRE(world.running.contains(2));
    CHECK_FALSE(world.core.accused(2));  // its successor is another process
    for (const Slot slot : {0, 1}) {
      world.feed(JobCore::Ready{slot, 1, 0, "", true, 2});
    }
    CHECK_FALSE(world.core.accused(2));
  }
  SUBCASE("it asks") { world.rejoin(2); }
  world.now += kCorruptEnds;
  world.feed(JobCore::Clock{});
  CHECK(world.stopped.empty());
}

TEST_CASE("also at the start, a member does not wait for ever") {
  JobConfig config = of(2, 1);
  config.join_timeout = 60s;
  JobWorld world(config, false);
  CHECK(world.core.state() == JobState::active);  // as far as one knows
  world.feed(JobCore::Ready{0, 0});
  CHECK(world.core.waits_for() == "rank 1 to ask for its round");
  world.now += 61s;
  world.feed(JobCore::Clock{});
  CHECK(world.stopped == Slots{1});
  CHECK(world.core.restarts_used() == 1);
}

TEST_CASE("every scope restarts its workers") {
  for (const auto scope : {RestartScope::job, RestartScope::node}) {
    JobConfig config = of(3, 1);
    config.scope = scope;
    JobWorld world(config);
    world.fail(0);
    CHECK(world.stopped == Slots{1, 2});
    CHECK(world.announced == std::vector<int>{1, 2});
  }
  JobConfig config = of(3, 1);
  config.scope = RestartScope::worker;
  JobWorld plain(config, false);
  plain.fail(0);
  CHECK(plain.stopped.empty());
  CHECK(plain.starts == 4);
  CHECK(plain.core.state() == JobState::active);
}

TEST_CASE("a worker that hangs ends a job without restarts, active or not") {
  JobWorld active(of(2));
  active.feed(JobCore::Replace{0});
  REQUIRE(active.finish);
  CHECK(active.finish->end == JobEnding::worker_failed);

  JobWorld forming(of(2, 1));
  forming.fail(0);
  forming.feed(JobCore::Replace{1});
  CHECK_FALSE(forming.finish);  // of the same round: it costs no restart of its own
  forming.feed(JobCore::Replace{1});
  REQUIRE(forming.finish);
  CHECK(forming.finish->end == JobEnding::worker_failed);
}

TEST_CASE(
    "where the last that was waited for is replaced by a spare or by nobody, a round is made") {
  JobWorld spare(of(2, 3, 1));
  spare.mute = {0};
  spare.fail(0);
  spare.rejoin(1);
  REQUIRE(spare.announced == std::vector<int>{1, 2});
  spare.mute = {};
  spare.feed(JobCore::Ready{0, 0});
  spare.fail(2);
  spare.feed(JobCore::Replace{1});
  spare.now += 2s;
  spare.feed(JobCore::Clock{});
  CHECK(spare.announced.back() > 2);

  JobConfig config = of(3, 1);
  config.min_size = 1;
  config.join_timeout = 60s;
  JobWorld late(config);
  late.mute = {1};
  late.fail(1);
  late.rejoin_all();
  late.now += 61s;
  late.feed(JobCore::Clock{});
  CHECK(late.core.state() == JobState::active);
  CHECK(late.roster == Slots{0, 2});

  JobWorld resized(config);
  resized.mute = {2};
  resized.fail(2);
  resized.rejoin_all();
  resized.feed(JobCore::Resize{2});
  CHECK(resized.core.state() == JobState::active);
  CHECK(resized.stopped == Slots{2});  // it holds nothing
}
