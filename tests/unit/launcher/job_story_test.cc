#include "launcher/lead/job_story.h"

#include <doctest/doctest.h>

#include "tests/unit/elastic/job_world.h"

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

}  // namespace
}  // namespace dlaunch
