// JobCore: jobs that grow and shrink on request, and members that finish meanwhile.
#include <doctest/doctest.h>

#include "elastic/job_core.h"
#include "tests/unit/elastic/job_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("resizing down stops the highest ranks, up starts newcomers first") {
  JobConfig config = of(4, 1);
  config.min_size = 1;
  JobWorld world(config);
  CHECK(world.core.resized_from() == 0);
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{2});
  CHECK(world.core.resized_from() == 4);
  world.rejoin(3);
  world.rejoin(0);
  CHECK(world.stopped.empty());  // the others may need what it commits
  CHECK(world.announced == std::vector<int>{1});
  world.rejoin(1);
  CHECK(world.announced == std::vector<int>{1, 2});
  CHECK(world.core.resized_from() == 0);
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.stopped == Slots{2, 3});
  CHECK(world.core.target_size() == 2);
  CHECK(world.fences == std::vector<int>{2});
  world.mute = {3};
  world.feed(JobCore::Resize{4});
  CHECK(world.running.size() == 4);
  CHECK(world.core.state() == JobState::active);  // nobody waits for them
  world.feed(JobCore::Ready{3, 0});
  CHECK(world.losts.back() == -1);  // they go on to their next commit
  CHECK(world.core.resized_from() == 2);
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2, 3});
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("a smaller size waits for the first commit of a round, whose members may still meet") {
  JobWorld world(of(4));
  world.feed(JobCore::Resize{2});
  CHECK(world.fences.empty());
  CHECK(world.core.state() == JobState::active);
  CHECK(world.core.deadline() == kStart + 5s);
  SUBCASE("which a member reports") { world.feed(JobCore::Progress{3, 1}); }
  SUBCASE("or for 5 s of silence") {
    world.now += 5s;
    world.feed(JobCore::Clock{});
  }
  CHECK(world.losts == std::vector<int>{-1});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.stopped == Slots{2, 3});
  CHECK(world.announced == std::vector<int>{1, 2});

  JobWorld silent(of(4));
  silent.now += 5s;
  silent.feed(JobCore::Resize{2});
  CHECK(silent.losts == std::vector<int>{-1});
}

TEST_CASE("a smaller size is still the target after a loss on the way to it") {
  JobConfig config = of(5);
  config.min_size = 1;
  JobWorld world(config);
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{2});
  world.fail(0);
  CHECK(world.core.resized_from() == 0);  // a failure as well
  CHECK(world.core.size() == 4);          // what the others hold may be needed
  world.rejoin_all();
  CHECK(world.roster == Slots{1, 2, 3, 4});
  CHECK(world.stopped.empty());
  world.feed(JobCore::Progress{1, 7});
  world.rejoin_all();
  CHECK(world.roster == Slots{1, 2});
  CHECK(world.announced == std::vector<int>{1, 3, 4});
}

TEST_CASE("a resize takes one round, however many members leave or come") {
  for (const int size : {1, 2, 7}) {
    JobConfig config = of(8);
    config.min_size = 1;
    JobWorld world(config);
    world.feed(JobCore::Progress{0, 1});
    world.feed(JobCore::Resize{size});
    world.rejoin_all();
    CHECK(world.core.size() == size);
    CHECK(world.announced == std::vector<int>{1, 2});
    world.feed(JobCore::Progress{0, 2});
    world.feed(JobCore::Resize{8});
    world.rejoin_all();
    CHECK(world.core.size() == 8);
    CHECK(world.announced == std::vector<int>{1, 2, 3});
    CHECK(world.core.restarts_used() == 0);
  }
}

TEST_CASE("newcomers that a smaller size does not need any more stop, and spares stay") {
  JobConfig config = of(4, 1, 1);
  config.min_size = 1;
  config.max_size = 8;
  JobWorld world(config);
  world.mute = {5, 6, 7, 8};  // on their way
  world.feed(JobCore::Resize{8});
  CHECK(world.running.size() == 9);
  SUBCASE("some of them") {
    world.feed(JobCore::Resize{6});
    CHECK(world.stopped == Slots{8, 7});
  }
  SUBCASE("all of them") {
    world.feed(JobCore::Resize{4});
    CHECK(world.stopped == Slots{8, 7, 6, 5});
  }
  SUBCASE("before members leave, too") {
    world.feed(JobCore::Progress{0, 1});
    world.feed(JobCore::Resize{2});
    CHECK(world.stopped == Slots{8, 7, 6, 5});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 1});
    CHECK(world.running.contains(4));
  }
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("if a leaving member of a resize is lost, the others stay one more round") {
  JobConfig config = of(5);
  config.min_size = 1;
  JobWorld world(config);
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{1});
  for (const Slot slot : {1, 2, 4}) world.rejoin(slot);
  world.fail(3);
  CHECK(world.losts == std::vector<int>{-1, 3});
  world.rejoin(0);
  CHECK(world.roster == Slots{0, 1, 2, 4});
  CHECK(world.stopped.empty());
  world.feed(JobCore::Progress{0, 2});
  world.rejoin_all();
  CHECK(world.roster == Slots{0});
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("a lost member gets its place back before a smaller size is tried again") {
  JobWorld world(of(4, 1));
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{1});
  world.fail(0);
  CHECK(world.core.size() == 4);
  CHECK(world.core.target_size() == 1);
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2, 3});
  SUBCASE("at the next commit") { world.feed(JobCore::Progress{1, 2}); }
  SUBCASE("or after 5 s of a program that reports none") {
    world.now += 5s;
    world.feed(JobCore::Clock{});
  }
  world.rejoin_all();
  CHECK(world.roster == Slots{0});
  CHECK(world.core.restarts_used() == 1);
}

TEST_CASE("a larger size after a smaller one keeps members that have not left yet") {
  JobConfig config = of(4, 1);
  config.min_size = 1;
  JobWorld world(config);
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{3});
  world.feed(JobCore::Resize{4});
  for (const Slot slot : {3, 0, 1, 2}) world.rejoin(slot);
  CHECK(world.stopped.empty());
  CHECK(world.roster == Slots{0, 1, 2, 3});
}

TEST_CASE("a member that finished early is started again if the others still need it") {
  JobWorld world(of(3, 2));
  world.succeed(0);
  world.rejoin(1);
  CHECK(world.core.restarts_used() == 1);
  CHECK(world.running.contains(0));
  world.rejoin(2);
  CHECK(world.roster == Slots{0, 1, 2});
}

TEST_CASE("a member that leaves after a peer has finished ends a job without restarts") {
  JobWorld world(of(2));
  world.succeed(0);
  world.rejoin(1);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
}

TEST_CASE("a member that finishes before the round that others wait for is started again") {
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

TEST_CASE("members that are in a round with a leaving member learn of its loss") {
  for (const bool hangs : {false, true}) {
    JobWorld world(of(3, 1));
    world.feed(JobCore::Progress{0, 1});
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
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{2});
  for (const Slot slot : {2, 0, 1}) world.succeed(slot);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::succeeded);

  // Others may not get as far.
  JobWorld halfway(of(3, 1));
  halfway.feed(JobCore::Progress{0, 1});
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
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{0});
  world.rejoin_all();
  CHECK(world.roster == Slots{0});
}
