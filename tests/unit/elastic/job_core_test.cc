#include "elastic/job_core.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "elastic/job_driver.h"
#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// A job whose processes start at once and end when they are told, or asked to by the test.
class JobWorld {
 public:
  // absent: nodes.
  explicit JobWorld(JobConfig config, bool elastic = true, const std::vector<int>& absent = {})
      : core(config), elastic_(elastic) {
    for (const int node : absent) feed(JobCore::NodeLost{node});
    feed(JobCore::Start{});
  }

  // Under a new leader, with those processes that `earlier` left behind.
  JobWorld(JobConfig config, const JobWorld& earlier, const std::vector<int>& absent = {})
      : core(config), now(earlier.now), elastic_(earlier.elastic_) {
    JobCore::Resume resume{earlier.core.record(), {}};
    for (const int node : absent) feed(JobCore::NodeLost{node});
    for (const auto& [slot, rank] : earlier.running) {
      const int node = config.nodes.empty() ? 0 : config.nodes[static_cast<std::size_t>(slot)];
      if (std::count(absent.begin(), absent.end(), node) != 0) continue;
      running[slot] = rank;
      JobCore::Found found{.slot = slot, .linked = elastic_, .round = 1};
      if (earlier.left.contains(slot)) {
        found.in_round = found.round = left[slot] = earlier.left.at(slot);
      }
      resume.found.push_back(found);
    }
    announced = earlier.announced;
    feed(resume);
  }

  void feed(const JobCore::Event& event) {
    feed_now(event);
    // What is put off only so that others go first.
    while (core.deadline() && *core.deadline() > now && *core.deadline() <= now + 10ms) {
      now = *core.deadline();
      feed_now(JobCore::Clock{});
    }
  }
  void feed_now(const JobCore::Event& event) {
    for (const auto& action : core.step(now, event)) {
      std::visit([this](const auto& what) { perform(what); }, action);
    }
    // What the processes do about it, in turn.
    while (!todo_.empty()) {
      const auto next = todo_.front();
      todo_.erase(todo_.begin());
      for (const auto& action : core.step(now, next)) {
        std::visit([this](const auto& what) { perform(what); }, action);
      }
    }
  }
  void fail(Slot slot, bool consequence = false) {
    REQUIRE(running.erase(slot) == 1);
    left.erase(slot);
    feed(JobCore::Ended{slot, false, consequence});
  }
  void succeed(Slot slot) {
    REQUIRE(running.erase(slot) == 1);
    feed(JobCore::Ended{slot, true});
  }
  // A member has noticed that its round is over.
  void rejoin(Slot slot) { feed(JobCore::Ready{slot, left[slot]}); }
  void rejoin_all() {
    const auto members = core_members();
    for (const Slot slot : members) {
      if (running.contains(slot) && left.contains(slot)) rejoin(slot);
    }
  }
  std::vector<Slot> core_members() const { return roster; }

  JobCore core;
  TimePoint now = kStart;
  std::map<Slot, int> running;  // slot -> the rank it was started with
  std::map<Slot, int> left;     // slot -> the last round it was told
  std::vector<Slot> roster;     // as announced
  std::vector<int> announced;   // rounds
  std::vector<int> fences, losts;
  std::vector<Slot> stopped;
  std::set<Slot> stubborn;  // do not end when they are told
  std::set<Slot> mute;      // do not ask for a round
  std::optional<JobCore::Finish> finish;
  int starts = 0;

 private:
  void perform(const JobCore::StartWorkers& start) {
    for (const auto& place : start.places) {
      CHECK_MESSAGE(!running.contains(place.slot), "a slot is used twice");
      running[place.slot] = place.rank;
      ++starts;
      todo_.push_back(JobCore::Spawned{place.slot});
      if (elastic_ && !mute.contains(place.slot)) todo_.push_back(JobCore::Ready{place.slot, 0});
    }
  }
  void perform(const JobCore::StopWorkers& stop) {
    for (const Slot slot : stop.slots) {
      stopped.push_back(slot);
      if (stubborn.contains(slot) && stop.signal != SIGKILL) continue;
      if (running.erase(slot) == 0) continue;
      left.erase(slot);
      todo_.push_back(JobCore::Ended{slot, false});
    }
  }
  void perform(const JobCore::HandOn&) {}
  void perform(const JobCore::Fence& fence) {
    fences.push_back(fence.round);
    losts.push_back(fence.lost);
  }
  void perform(const JobCore::Announce& announce) {
    if (!announced.empty()) CHECK(announce.round > announced.back());
    announced.push_back(announce.round);
    roster = announce.slots;
    const std::set<Slot> once(roster.begin(), roster.end());
    CHECK(once.size() == roster.size());
    for (const Slot slot : roster) {
      CHECK(running.contains(slot));
      left[slot] = announce.round;
    }
  }
  void perform(const JobCore::Finish& how) {
    CHECK_FALSE(finish);
    finish = how;
  }

  const bool elastic_;
  std::vector<JobCore::Event> todo_;
};

JobConfig of(int size, int restarts = 0, int spares = 0) {
  return {.size = size,
          .min_size = size,
          .max_size = size,
          .spares = spares,
          .restarts = {.limit = {.restarts = restarts}, .futile_restarts = 0}};
}

using Slots = std::vector<Slot>;

// So many workers on each of two nodes.
JobConfig on_two_nodes(int each, int restarts, int min_size) {
  JobConfig config = of(2 * each, restarts);
  config.min_size = min_size;
  for (Slot slot = 0; slot < config.size; ++slot) config.nodes.push_back(slot / each);
  return config;
}

// All that runs there is gone, and nobody tells.
void lose_node(JobWorld& world, int node, const JobConfig& config) {
  for (Slot slot = 0; slot < JobCore::slots(config); ++slot) {
    if (config.nodes[static_cast<std::size_t>(slot)] != node) continue;
    world.running.erase(slot);
    world.left.erase(slot);
  }
  world.feed(JobCore::NodeLost{node});
}

}  // namespace

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

TEST_CASE(
    "a job that goes on for one of which nothing is left has what that left of the restarts") {
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

TEST_CASE("whoever ends a job begins with one of its workers: that is not counted by the next") {
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

TEST_CASE("the survivors hear of a loss before the replacement is started") {
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

TEST_CASE("a spare takes the lost rank, and another process waits in its stead") {
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

TEST_CASE("rounds that the members give up for a cause that is nobody's end with the restarts") {
  const auto give_up = [](JobWorld& world, std::uint64_t version) {
    for (const Slot slot : {0, 1, 2}) {
      world.feed(
          JobCore::Ready{slot, world.left[slot], version, slot == 1 ? "" : "it stands still"});
    }
  };
  JobWorld world(of(3, 2));
  give_up(world, 0);
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
  CHECK(world.announced.back() == 4);
}

TEST_CASE("a round that is given up because somebody is lost costs that loss alone") {
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

TEST_CASE(
    "whoever is heard first, the others or the end, the next loss is not taken for the same") {
  JobWorld world(of(3, 10));
  world.feed(JobCore::Ready{0, 1, 10});  // it has noticed before the launcher
  world.fail(2);
  world.feed(JobCore::Ready{1, 1, 10});
  REQUIRE(world.announced.size() == 2);
  world.fail(2);
  CHECK(world.running.contains(2));  // at once: ten steps lie between the two
}

TEST_CASE("what is said of an older round is not believed") {
  JobWorld world(of(2, 5));
  world.fail(0);
  world.rejoin(1);
  REQUIRE(world.announced == std::vector<int>{1, 2});
  world.feed(JobCore::Ready{1, 1});
  CHECK(world.core.state() == JobState::active);
  CHECK(world.announced == std::vector<int>{1, 2});
}

TEST_CASE("with no restart left it goes on with fewer, down to the least") {
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

TEST_CASE("resizing down stops the highest ranks, up starts newcomers first") {
  JobConfig config = of(4, 1);
  config.min_size = 1;
  JobWorld world(config);
  world.feed(JobCore::Resize{2});
  world.rejoin(3);
  world.rejoin(0);
  CHECK(world.stopped.empty());  // the others may need what it commits
  world.rejoin(1);
  CHECK(world.announced == std::vector<int>{1});
  world.rejoin(2);
  CHECK(world.roster == Slots{0, 1, 2});  // one at a time: its neighbour has its part of the state
  CHECK(world.stopped == Slots{3});
  CHECK(world.core.target_size() == 2);
  CHECK(world.fences == std::vector<int>{2});  // nobody has anything of the new cut yet
  world.feed(JobCore::Progress{2, 7});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.stopped == Slots{3, 2});
  world.mute = {3};
  world.feed(JobCore::Resize{4});
  CHECK(world.running.size() == 4);
  CHECK(world.core.state() == JobState::active);  // nobody waits for them
  world.feed(JobCore::Ready{3, 0});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2, 3});
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("a larger size after a smaller one keeps who has not gone yet") {
  JobConfig config = of(4, 1);
  config.min_size = 1;
  JobWorld world(config);
  world.feed(JobCore::Resize{3});
  world.feed(JobCore::Resize{4});
  for (const Slot slot : {3, 0, 1, 2}) world.rejoin(slot);
  CHECK(world.stopped.empty());
  CHECK(world.roster == Slots{0, 1, 2, 3});
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

TEST_CASE("at the start, too, who waits does not wait for ever") {
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

TEST_CASE("whoever finished early is started again where the others still need it") {
  JobWorld world(of(3, 2));
  world.succeed(0);
  world.rejoin(1);
  CHECK(world.core.restarts_used() == 1);
  CHECK(world.running.contains(0));
  world.rejoin(2);
  CHECK(world.roster == Slots{0, 1, 2});
}

TEST_CASE("every scope takes along whom it says") {
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

TEST_CASE("the user's signals end the job, the second one at once") {
  JobWorld world(of(2, 3));
  world.stubborn = {0, 1};
  world.feed(JobCore::Signal{SIGINT});
  CHECK_FALSE(world.finish);
  world.feed(JobCore::Signal{SIGINT});  // timeout(1) sends each twice
  CHECK_FALSE(world.finish);
  world.now += 1s;
  world.feed(JobCore::Signal{SIGHUP});
  CHECK_FALSE(world.finish);
  world.feed(JobCore::Signal{SIGINT});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::interrupted);
  CHECK(world.finish->signal == SIGINT);
}

TEST_CASE("the job's time-out ends it") {
  JobConfig config = of(2);
  config.timeout = 30s;
  JobWorld world(config);
  CHECK(*world.core.deadline() == kStart + 30s);
  world.now += 30s;
  world.feed(JobCore::Clock{});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::timed_out);
}

TEST_CASE("what cannot be killed ends the job, and is told") {
  JobWorld world(of(2, 3));
  world.stubborn = {1};
  world.feed(JobCore::Signal{SIGTERM});
  world.feed(JobCore::Unkillable{1});
  REQUIRE(world.finish);
  CHECK_FALSE(world.finish->all_reaped);
}

TEST_CASE("a program that cannot be started ends the job") {
  JobWorld world(of(2, 3));
  world.running.erase(1);
  world.feed(JobCore::SpawnFailed{1});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::spawn_failed);
}

TEST_CASE("a member that leaves after a peer has finished ends a job without restarts") {
  JobWorld world(of(2));
  world.succeed(0);
  world.rejoin(1);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
}

TEST_CASE("who finishes without having been in the round others wait for is started again") {
  JobWorld world(of(3, 1));
  world.mute = {1};
  world.fail(1);
  world.rejoin_all();
  world.succeed(1);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);

  // Before anybody waits it may be a program that does not ask for rounds.
  JobWorld early(of(2, 1), false);
  early.succeed(0);
  CHECK(early.core.restarts_used() == 0);
  early.feed(JobCore::Ready{1, 0});
  CHECK(early.core.restarts_used() == 1);
  CHECK(early.running.contains(0));
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
}

TEST_CASE("the loss of one that a resize leaves out is told to those that are still with it") {
  for (const bool hangs : {false, true}) {
    JobWorld world(of(3, 1));
    world.feed(JobCore::Resize{2});
    CHECK(world.losts == std::vector<int>{-1});
    hangs ? world.feed(JobCore::Replace{2}) : world.fail(2);
    CHECK(world.losts == std::vector<int>{-1, 2});
    CHECK(world.fences == std::vector<int>{2, 2});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 1});
    CHECK(world.running.size() == 2);
    CHECK(world.core.restarts_used() == 0);
  }
}

TEST_CASE("members that finish while a resize waits for their next commit have finished") {
  JobWorld world(of(3));
  world.feed(JobCore::Resize{2});
  for (const Slot slot : {2, 0, 1}) world.succeed(slot);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::succeeded);

  // Others may not get as far.
  JobWorld halfway(of(3, 1));
  halfway.feed(JobCore::Resize{2});
  halfway.succeed(0);
  CHECK(halfway.core.restarts_used() == 0);
  halfway.rejoin(1);
  CHECK(halfway.core.restarts_used() == 1);
  CHECK(halfway.announced == std::vector<int>{1, 3});
}

TEST_CASE("resizing goes as low as one, also below the least size for losses") {
  JobConfig config = of(4);
  config.min_size = 3;
  JobWorld world(config);
  world.feed(JobCore::Resize{0});
  for (int round = 2; round <= 4; ++round) {
    world.rejoin_all();
    world.now += 5s;  // no commit is reported
    world.feed(JobCore::Clock{});
  }
  CHECK(world.roster == Slots{0});
}

TEST_CASE("a lost node is waited for, and its ranks come back with it") {
  const auto config = on_two_nodes(2, 1, 4);
  JobWorld world(config);
  lose_node(world, 1, config);
  world.rejoin_all();
  CHECK(world.announced == std::vector<int>{1});
  CHECK(world.losts == std::vector<int>{2});
  CHECK(world.core.waits_for() == "rank 2 to have its host back, rank 3 to have its host back");
  CHECK(world.core.deadline() == kStart + 600s);
  CHECK(world.starts == 4);
  world.feed(JobCore::NodeBack{1});
  CHECK(world.starts == 6);
  CHECK(world.roster == Slots{0, 1, 2, 3});
  CHECK(world.announced == std::vector<int>{1, 2});
  CHECK(world.core.restarts_used() == 1);
  CHECK(world.stopped.empty());
}

TEST_CASE("a node that does not come back ends the job") {
  const auto config = on_two_nodes(2, 5, 4);
  JobWorld world(config);
  lose_node(world, 0, config);
  world.rejoin_all();
  world.now += 600s;
  world.feed(JobCore::Clock{});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
  CHECK(world.finish->why.find("did not come back") != std::string::npos);
}

TEST_CASE("a job that may shrink goes on without the lost node, and grows when it is back") {
  for (const int restarts : {0, 3}) {
    const auto config = on_two_nodes(2, restarts, 1);
    JobWorld world(config);
    lose_node(world, 0, config);
    world.rejoin_all();
    CHECK(world.roster == Slots{2, 3});
    CHECK(world.announced == std::vector<int>{1, 2});
    world.feed(JobCore::NodeBack{0});
    world.rejoin_all();
    CHECK(world.roster == Slots{2, 3, 0, 1});
    CHECK(world.core.size() == 4);
    for (const Slot slot : world.core_members()) world.succeed(slot);
    CHECK(world.finish->end == JobEnding::succeeded);
  }
}

TEST_CASE("spares on another node take a lost node's ranks") {
  JobConfig config = of(2, 3, 1);
  config.nodes = {0, 1, 0};
  JobWorld world(config);
  lose_node(world, 1, config);
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 2});
  CHECK_FALSE(world.running.contains(1));  // the next spare, once its node is back
  world.feed(JobCore::NodeBack{1});
  CHECK(world.running.at(1) == -1);
}

TEST_CASE("a round that is wholly out of reach may go on, and no other begins meanwhile") {
  JobConfig config = of(2, 3, 2);
  config.nodes = {0, 1, 2, 2};
  config.node_ends = 6s;
  JobWorld world(config);
  world.feed(JobCore::NodeLost{0});
  CHECK(world.announced == std::vector<int>{1});  // rank 1 has not left it yet
  world.feed(JobCore::NodeLost{1});
  CHECK(world.announced == std::vector<int>{1});
  CHECK(world.core.deadline() == kStart + 6s);
  SUBCASE("until one of its nodes is back without it") {
    world.running.erase(1);
    world.feed(JobCore::NodeBack{1});
    CHECK(world.announced.size() == 2);
  }
  SUBCASE("until its nodes must have ended it") {
    world.now = kStart + 6s;
    world.feed(JobCore::Clock{});
    CHECK(world.announced.size() == 2);
    CHECK(world.roster == Slots{2, 3});
  }
  SUBCASE("by the next leader neither") {
    JobWorld next(config, world, {0, 1});
    for (const Slot slot : {2, 3}) next.rejoin(slot);
    CHECK(next.announced == std::vector<int>{1});
    next.now += 6s;
    next.feed(JobCore::Clock{});
    CHECK(next.announced.size() == 2);
  }
}

TEST_CASE("plain programs go on together, with fewer where they may") {
  auto config = on_two_nodes(2, 1, 2);
  JobWorld world(config, false);
  lose_node(world, 1, config);
  CHECK(world.core.size() == 2);
  CHECK(world.starts == 6);
  config.min_size = 4;
  JobWorld all(config, false);
  lose_node(all, 1, config);
  CHECK(all.running.empty());
  all.feed(JobCore::NodeBack{1});
  CHECK(all.starts == 8);
  CHECK(all.core.state() == JobState::active);
}

TEST_CASE("a node that is lost while the job ends has ended") {
  const auto config = on_two_nodes(1, 0, 2);
  JobWorld world(config);
  world.stubborn = {1};
  world.fail(0);
  CHECK_FALSE(world.finish);
  lose_node(world, 1, config);
  CHECK(world.finish.has_value());
}

TEST_CASE("a job does not grow beyond the nodes that are there") {
  auto config = on_two_nodes(2, 0, 1);
  config.size = 2;
  JobCore core(config);
  CHECK(core.step(kStart, JobCore::NodeLost{1}).empty());
  JobWorld world(config);
  lose_node(world, 1, config);
  world.feed(JobCore::Resize{4});
  CHECK(world.core.target_size() == 2);
  world.feed(JobCore::NodeBack{1});
  world.rejoin_all();
  CHECK(world.core.size() == 4);
}

TEST_CASE("a job that began with fewer nodes grows by those that come later") {
  auto config = on_two_nodes(2, 0, 2);
  config.size = 2;
  JobWorld world(config, true, {1});
  CHECK(world.roster == Slots{0, 1});
  world.feed(JobCore::NodeBack{1});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2, 3});
  CHECK(world.core.restarts_used() == 0);
  lose_node(world, 1, config);  // and again
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1});
  world.feed(JobCore::NodeBack{1});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2, 3});
}

TEST_CASE("members leave a node that is to be lost, one a commit, and come back with another") {
  JobWorld world(on_two_nodes(2, 0, 2));
  world.feed(JobCore::NodeDrain{0});
  CHECK(world.losts == std::vector<int>{-1});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 2, 3});
  CHECK(world.stopped == Slots{1});
  CHECK_FALSE(world.core.nobody_on(0));
  world.feed(JobCore::Progress{2, 1});
  world.rejoin_all();
  CHECK(world.roster == Slots{2, 3});
  CHECK(world.core.nobody_on(0));
  CHECK_FALSE(world.core.nobody_on(1));
  CHECK(world.core.restarts_used() == 0);
  world.feed(JobCore::Resize{4});  // not there
  CHECK(world.core.target_size() == 2);
  world.feed(JobCore::NodeLost{0});
  CHECK(world.announced == std::vector<int>{1, 2, 3});
  world.feed(JobCore::NodeBack{0});
  world.rejoin_all();
  CHECK(world.roster == Slots{2, 3, 0, 1});
}

TEST_CASE("who is needed stays on a node that is to be lost, until others have come") {
  auto config = on_two_nodes(2, 0, 2);
  config.size = 2;  // and two more may come with the second node
  JobWorld world(config, true, {1});
  world.feed(JobCore::NodeDrain{0});
  world.feed(JobCore::Progress{0, 1});
  CHECK(world.fences.empty());
  CHECK_FALSE(world.core.nobody_on(0));
  world.feed(JobCore::NodeBack{1});
  for (std::uint64_t commit = 2; commit <= 4; ++commit) {
    world.rejoin_all();
    world.feed(JobCore::Progress{2, commit});
  }
  CHECK(world.roster == Slots{2, 3});
  CHECK(world.core.nobody_on(0));
}

TEST_CASE("with the scope of a node, those on other nodes stay") {
  auto config = on_two_nodes(2, 3, 4);
  config.scope = RestartScope::node;
  JobWorld world(config);
  world.fail(3);
  CHECK(world.stopped == Slots{2});
  world.rejoin_all();
  CHECK(world.announced == std::vector<int>{1, 2});
  CHECK(world.roster == Slots{0, 1, 2, 3});
}

// -- Another leader

namespace {

JobConfig one_on_each_of(int nodes, int min_size, int restarts) {
  JobConfig config{.size = nodes, .min_size = min_size, .max_size = nodes};
  config.restarts.limit.restarts = restarts;
  for (int node = 0; node < nodes; ++node) config.nodes.push_back(node);
  return config;
}

}  // namespace

TEST_CASE("the next leader's first round has a new number and the processes that are there") {
  const JobConfig config = one_on_each_of(3, 1, 2);
  const JobWorld first(config);
  JobWorld world(config, first);
  CHECK(world.fences.back() > first.announced.back());
  CHECK(world.announced == first.announced);  // they have not left the old one yet
  world.rejoin_all();
  for (const Slot slot : {0, 1, 2}) world.rejoin(slot);
  REQUIRE(world.announced.size() == 2);
  CHECK(world.roster == first.roster);
  CHECK(world.starts == 0);
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("a node that was lost with its leader is one failure; the others go on without it") {
  const JobConfig config = one_on_each_of(3, 2, 2);
  const JobWorld first(config);
  JobWorld world(config, first, {0});
  for (const Slot slot : {1, 2}) world.rejoin(slot);
  CHECK(world.roster == std::vector<Slot>{1, 2});
  CHECK(world.starts == 0);
  CHECK(world.core.restarts_left(world.now) == 1);
  world.feed(JobCore::NodeBack{0});
  for (const Slot slot : {1, 2}) world.rejoin(slot);
  CHECK(world.roster.size() == 3);
  JobWorld third(config, world, {1});
  CHECK(third.core.restarts_left(third.now) == 0);
  JobWorld fourth(config, third, {0});
  REQUIRE(fourth.finish);
  CHECK(fourth.finish->end == JobEnding::worker_failed);
}

TEST_CASE("a process that ended while nobody led is started again in its place") {
  const JobConfig config = one_on_each_of(2, 1, 2);
  JobWorld first(config);
  first.running.erase(1);
  JobWorld world(config, first);
  world.rejoin(0);
  CHECK(world.starts == 1);
  CHECK(world.roster == std::vector<Slot>{0, 1});
  CHECK(world.core.restarts_used() == 1);
}

TEST_CASE("what a host lost whose agent was started again with the leader is one failure") {
  JobConfig config = one_on_each_of(4, 1, 1);
  config.nodes = {0, 0, 1, 1};
  JobWorld first(config);
  first.running.erase(0);
  first.running.erase(1);
  JobWorld world(config, first);
  world.rejoin(2);
  world.rejoin(3);
  CHECK_FALSE(world.finish);
  CHECK(world.starts == 2);
  CHECK(world.roster == std::vector<Slot>{0, 1, 2, 3});
  CHECK(world.core.restarts_used() == 1);
}

TEST_CASE("programs that do not take part in rounds are started again by the next leader") {
  const JobConfig config = one_on_each_of(2, 1, 2);
  const JobWorld first(config, false);
  JobWorld world(config, first);
  CHECK(world.stopped == std::vector<Slot>{0, 1});
  CHECK(world.starts == 2);
  CHECK(world.core.round() > first.core.round());
}

TEST_CASE("a job whose members have all finished is over under the next leader") {
  JobCore core(one_on_each_of(2, 1, 0));
  const JobCore::Found a{.slot = 0, .done = true, .round = 1},
      b{.slot = 1, .done = true, .round = 1};
  JobCore::Resume resume;
  resume.was.round = resume.was.live = 1;
  resume.was.roster = {0, 1};
  resume.found = {a, b};
  const auto actions = core.step(kStart, resume);
  REQUIRE(actions.size() == 1);
  CHECK(std::get<JobCore::Finish>(actions.front()).end == JobEnding::succeeded);
}

TEST_CASE("what a lost leader had decided about a member stands") {
  const JobCore::Found member{.slot = 0, .linked = true, .in_round = 3, .round = 3, .version = 8},
      other{.slot = 1, .linked = true, .in_round = 3, .round = 3, .version = 8},
      spare{.slot = 2, .linked = true, .ready = true, .round = 1};
  JobConfig config;
  config.size = config.max_size = 2;
  config.min_size = config.spares = 1;
  JobCore::Resume resume;
  resume.was = {.round = 4, .live = 3, .wished_size = 2};
  resume.found = {member, other, spare};
  const auto stopped = [&] {
    JobCore core(config);
    std::vector<std::pair<Slot, int>> all;
    for (const auto& action : core.step(kStart, resume)) {
      const auto* stop = std::get_if<JobCore::StopWorkers>(&action);
      if (stop != nullptr) all.emplace_back(stop->slots.front(), stop->signal);
    }
    return all;
  };
  SUBCASE("replaced: it is killed, though nobody was told") {
    resume.was.roster = {2, 1};
    CHECK(stopped() == std::vector<std::pair<Slot, int>>{{0, SIGKILL}});
  }
  SUBCASE("left out: it goes when the others have their round") {
    resume.was.wished_size = 1;
    resume.was.roster = {1};
    resume.was.leaving = {{0, 0}};
    CHECK(stopped().empty());
    resume.found[1].ready = true;
    CHECK(stopped() == std::vector<std::pair<Slot, int>>{{0, SIGTERM}});
  }
}

TEST_CASE("who was in the newest round that may have got on") {
  const JobRecord record{.round = 5, .live = 3, .roster = {0, 2}};
  CHECK(JobCore::holds(record, {{.slot = 2, .in_round = 3, .round = 3}}));
  CHECK(JobCore::holds(record, {{.slot = 2, .in_round = 2, .round = 2}}));  // not told of 3 yet
  CHECK(JobCore::holds(record, {{.slot = 2, .round = 3}}));                 // not linked
  CHECK_FALSE(JobCore::holds(record, {{.slot = 2, .round = 4}}));
  CHECK_FALSE(JobCore::holds(record, {{.slot = 1, .round = 3}}));
  CHECK_FALSE(JobCore::holds(record, {}));
}

TEST_CASE("nothing is done before it is written down, nor what nobody wishes any more") {
  struct Hands : JobDriver::Hands {
    TimePoint now() override { return kStart; }
    bool writes_down() const override { return true; }
    void write_down(const JobRecord& record, std::function<void()> then) override {
      records.push_back(record);
      written.push_back(std::move(then));
    }
    void perform(const JobCore::StartWorkers& start) override {
      for (const auto& place : start.places) started.push_back(place.slot);
    }
    void perform(const JobCore::StopWorkers&) override {}
    void perform(const JobCore::HandOn&) override {}
    void perform(const JobCore::Fence& fence) override { fences.push_back(fence.round); }
    void perform(const JobCore::Announce&) override {}
    void perform(const JobCore::Finish&) override { ++finished; }
    std::vector<JobRecord> records;
    std::vector<std::function<void()>> written;
    std::vector<Slot> started;
    std::vector<int> fences;
    int finished = 0;
  } hands;
  Pump pump;
  JobDriver driver(one_on_each_of(3, 2, 2), pump, hands);
  driver.feed(JobCore::Start{});
  REQUIRE(hands.records.size() == 1);
  CHECK(hands.records[0].round == 1);
  CHECK(hands.started.empty());
  driver.feed(JobCore::NodeLost{2});
  CHECK(hands.fences.empty());
  REQUIRE(hands.records.size() == 2);
  CHECK(hands.records[1].round == 2);
  hands.written[0]();
  CHECK(hands.started == std::vector<Slot>{0, 1});
  CHECK(hands.fences.empty());
  hands.written[1]();
  CHECK(hands.fences == std::vector<int>{2});
}
