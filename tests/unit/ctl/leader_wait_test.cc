#include "cli/ctl/leader_wait.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using dlaunch::ctl::LeaderWait;
using namespace std::chrono_literals;

namespace {

Duration waits(LeaderWait wait) {
  TimePoint now = kStart;
  while (!wait.over(now)) now += 1s;
  return now - kStart;
}

}  // namespace

TEST_CASE("leader wait: as long as the job's hosts wait, if the job has not ended") {
  CHECK(waits({kStart, {.hosts_wait = 10min}}) == 10min);
  CHECK(waits({kStart, {.elsewhere = true, .hosts_wait = 10min}}) == 10min);
  CHECK(waits({kStart, {.elsewhere = true, .hosts_wait = 8s}}) == 8s);
  CHECK(waits({kStart, {.hosts_wait = Duration::max(), .until = kStart + 1h}}) == 1h);
}

TEST_CASE("leader wait: a short time, if the job may have ended") {
  CHECK(waits({kStart, {}}) == 2s);
  CHECK(waits({kStart, {.elsewhere = true}}) == 1min);
}

TEST_CASE("leader wait: no longer than the user's limit") {
  const TimePoint until = kStart + 5s;
  CHECK(waits({kStart, {.hosts_wait = 10min, .until = until}}) == 5s);
  CHECK(waits({kStart, {.until = until}}) == 2s);
  LeaderWait seen(kStart, {.hosts_wait = 10min, .until = until});
  seen.seen(kStart + 4s);
  CHECK(waits(seen) == 5s);
}

TEST_CASE("leader wait: while a dlaunch of the job is here, and no shorter for that") {
  LeaderWait wait(kStart, {});
  wait.seen(kStart + 1s);
  CHECK(waits(wait) == 3s);
  LeaderWait longer(kStart, {.hosts_wait = 10min});
  longer.seen(kStart + 1s);
  CHECK(longer.left(kStart + 1min) == 9min);
}
