#include "launcher/lead/job_story.h"

#include <doctest/doctest.h>

#include "tests/unit/elastic/job_world.h"
#include "tests/unit/launcher/job_facts.h"

namespace dlaunch {
namespace {

std::string next(const JobWorld& world, Slot slot, int rank, int size_before) {
  return what_follows(world.core, slot, rank, size_before, " in 2 s");
}

TEST_CASE("job story: what follows a loss: a spare, a new process, or fewer workers") {
  JobWorld with_spare(of(2, 3, 1));
  with_spare.fail(1);
  CHECK(next(with_spare, 1, 1, 2) == "a spare takes its place");
  CHECK(next(with_spare, 2, -1, 2) == "starting another spare in 2 s");

  JobWorld without(of(2, 3));
  without.fail(1);
  CHECK(next(without, 1, 1, 2) == "starting it again in 2 s");

  JobConfig config = of(3, 0);
  config.min_size = 1;
  JobWorld shrinks(config);
  shrinks.fail(1);
  CHECK(next(shrinks, 1, 1, 3) == "going on with 2 of 3 workers");
}

TEST_CASE("job story: a process that does not end is named, with what delays it") {
  JobCore::AwaitEnd awaited{{.slot = 1, .rank = 3, .pid = 77, .doing = "an uninterruptible sleep"},
                            std::chrono::seconds(55)};
  CHECK(in_words(awaited, "b") ==
        "rank 3 (pid 77 on b) has not ended 5 s after SIGKILL, because of an uninterruptible "
        "sleep: dlaunch waits up to 55 s longer for its end, before it starts another process in "
        "its place");
  awaited.of = {.slot = 1, .pid = 78};
  CHECK(in_words(awaited, "b")
            .starts_with("a spare (pid 78 on b) has not ended 5 s after "
                         "SIGKILL: dlaunch waits"));
}

TEST_CASE("job story: ranks that were stopped after the loss of a host are not the cause") {
  const Plan plan{.argv = {"./train"}, .host = "a"};
  JobStory story(plan);
  story.lost_host("", {});
  story.lost_host("b", {1});
  story.ended(stopped(0, 20), 0);
  const JobWorld world(of(2));
  const auto ending = story.finish({.end = JobEnding::worker_failed, .why = ""}, world.core, {},
                                   [](int, const auto&) { return false; });
  CHECK(ending.exit_code == 69);
  CHECK(ending.report.at(0).find("host b was lost with rank 1") != std::string::npos);
}

TEST_CASE("job story: a spare that has failed before is no cause of the job's end") {
  const Plan plan{.argv = {"./train"}, .host = "a"};
  JobStory story(plan);
  story.begin_round(1, 1);
  int place = -1;
  SUBCASE("a spare") {}
  SUBCASE("but one that had got a place is") { place = 0; }
  story.ended(exited(-1, 10, 5), place);
  story.ended(exited(0, 20, 3), 0);
  const JobWorld world(of(1));
  const auto ending = story.finish({.end = JobEnding::worker_failed, .why = ""}, world.core, {},
                                   [](int, const auto&) { return false; });
  CHECK(ending.exit_code == (place < 0 ? 3 : 5));
  REQUIRE_FALSE(ending.report.empty());
  CHECK(ending.report[0].find("rank 0 ") != std::string::npos);
}

}  // namespace
}  // namespace dlaunch
