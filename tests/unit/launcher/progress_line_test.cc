// The line that says how far a job is, and the pace of a program.
#include "launcher/lead/control/progress_line.h"

#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// A job of so many workers; the first `up` run, and the first `in_ring` of them have joined.
JobStatus job(JobState state, int size, int up, int in_ring = 0) {
  JobStatus status;
  status.state = state;
  status.round = 1;
  status.size = size;
  for (int rank = 0; rank < size; ++rank) {
    WorkerStatus& worker = status.workers.emplace_back();
    worker.slot = worker.rank = rank;
    worker.up = rank < up;
    worker.figures.in_ring = rank < in_ring;
  }
  return status;
}

JobStatus in_collective(JobStatus status) {
  status.workers[0].operation = FlightEntry{"all_reduce #1", FlightState::done, {}, {}};
  return status;
}

RunProgress report(Duration at, std::int64_t step, std::int64_t total = 0,
                   std::vector<ProgressValue> values = {}) {
  return {kStart + at, step, total, std::move(values)};
}

std::string row_of(const ProgressLine::Turn& turn) {
  if (!turn.row) return "unchanged";
  return turn.row->text + (turn.row->urgent ? " !" : "");
}

}  // namespace

TEST_CASE("progress line: what a job is at") {
  JobStatus gathers;
  gathers.hosts_here = 3;
  gathers.hosts_wanted = 4;
  CHECK(stage_of(gathers) == "starting: 3 of 4 hosts");
  gathers.hosts = {"node7: being started"};
  CHECK(stage_of(gathers) == "starting: 3 of 4 hosts; node7: being started");
  CHECK(stage_of(job(JobState::forming, 32, 24)) == "starting: 24 of 32 workers");
  CHECK(stage_of(job(JobState::active, 32, 32)) == "");
  CHECK(stage_of(job(JobState::active, 32, 32, 30)) ==
        "rendezvous: 30 of 32 ranks, waiting for ranks 30-31");
  CHECK(stage_of(job(JobState::active, 2, 2, 1)) == "rendezvous: 1 of 2 ranks, waiting for rank 1");
  const JobStatus joined = job(JobState::active, 32, 32, 32);
  CHECK(stage_of(joined) == "round 1: 32 workers, before the first collective");
  CHECK(stage_of(in_collective(joined)) == "");
  CHECK_FALSE(is_settled(joined));
  CHECK(is_settled(in_collective(joined)));
  CHECK(is_settled(job(JobState::ending, 2, 2)));
}

TEST_CASE("progress line: a job that is started again says so") {
  JobStatus again = job(JobState::forming, 32, 31);
  again.round = 2;
  again.waits_for = "rank 31 to be started again";
  CHECK(stage_of(again) ==
        "round 2: restarting, 31 of 32 workers, waiting for rank 31 to be started again");
  again.waits_for = std::string(61, 'x');
  CHECK(stage_of(again) == "round 2: restarting, 31 of 32 workers");
}

TEST_CASE("progress line: a job that changes its size without a failure says so") {
  JobStatus resized = job(JobState::forming, 4, 4);
  resized.round = 3;
  resized.restarts_used = 1;  // earlier
  resized.resized_from = 2;
  resized.waits_for = "rank 0 to leave its round";
  CHECK(stage_of(resized) ==
        "round 3: resizing, 2 -> 4 workers, waiting for rank 0 to leave its round");
}

TEST_CASE("progress line: a program's progress in words") {
  PaceMeter meter;
  CHECK_FALSE(meter.at(kStart));
  meter.take(0, report(0s, 1000, 5000));
  CHECK(in_words(*meter.at(kStart)) == "step 1000/5000  20%");
  meter.take(0, report(10s, 1124, 5000, {{"loss", 1.8312}, {"lr", 3e-4}}));
  CHECK(in_words(*meter.at(kStart + 10s)) ==
        "step 1124/5000  22%  12.4 steps/s  ETA 5m12s  loss 1.831  lr 0.0003");
  CHECK(in_words(*meter.at(kStart + 12s)).find("ETA 5m10s") != std::string::npos);
  PaceMeter slow;
  slow.take(0, report(0s, 0, 100));
  slow.take(0, report(100s, 1, 100));
  CHECK(in_words(*slow.at(kStart + 100s)) == "step 1/100  1%  0.01 steps/s  ETA 2h45m");
  slow.take(0, report(200s, 2));
  CHECK(in_words(*slow.at(kStart + 200s)) == "step 2  0.01 steps/s");
}

TEST_CASE("pace: a program that reports nothing for long stands") {
  PaceMeter meter;
  for (int i = 0; i <= 10; ++i) meter.take(0, report(i * 1s, i, 100));
  CHECK_FALSE(meter.at(kStart + 19s)->stands);
  REQUIRE(meter.at(kStart + 35s)->stands);
  CHECK(in_words(*meter.at(kStart + 35s)) == "step 10/100  10%  no step for 25s");
  meter.take(0, report(36s, 11, 100));
  CHECK_FALSE(meter.at(kStart + 36s)->stands);
}

TEST_CASE("pace: the lowest rank that reports counts, and each round begins a new count") {
  PaceMeter meter;
  meter.take(3, report(0s, 7));
  meter.take(1, report(1s, 5));
  meter.take(3, report(2s, 8));
  CHECK(meter.at(kStart + 2s)->rank == 1);
  CHECK(meter.at(kStart + 2s)->last.step == 5);
  CHECK_FALSE(meter.at(kStart + 2s)->steps_per_s);
  meter.take(1, report(2s, 6));
  CHECK(*meter.at(kStart + 2s)->steps_per_s == doctest::Approx(1));
  meter.begin_round();
  REQUIRE(meter.at(kStart + 3s));
  CHECK(meter.at(kStart + 3s)->last.step == 6);  // until there is news
  CHECK_FALSE(meter.at(kStart + 3s)->steps_per_s);
  meter.take(2, report(60s, 4));  // rank 1 does not exist in this round
  CHECK(meter.at(kStart + 60s)->rank == 2);
  CHECK_FALSE(meter.at(kStart + 60s)->steps_per_s);
}

TEST_CASE("pace: a step that goes back, and a report that comes twice, give no wrong rate") {
  PaceMeter meter;
  meter.take(0, report(0s, 100));
  meter.take(0, report(1s, 110));
  meter.take(0, report(1s, 110));
  CHECK(meter.at(kStart + 1s)->steps_per_s.value_or(0) == doctest::Approx(10));
  meter.take(0, report(2s, 1));  // the next epoch
  CHECK_FALSE(meter.at(kStart + 2s)->steps_per_s);
  meter.take(0, report(3s, 21));
  CHECK(*meter.at(kStart + 3s)->steps_per_s == doctest::Approx(20));
  for (int i = 0; i < 1000; ++i) meter.take(0, report(4s + i * 1s, 21 + i));  // of late
  CHECK(*meter.at(kStart + 1003s)->steps_per_s == doctest::Approx(1));
}

TEST_CASE("progress line: a row on a terminal follows a start, the steps and a restart") {
  ProgressLine line(true, kStart);
  PaceMeter meter;
  CHECK(line.deadline() == kStart + 1s);  // a quick start shows nothing
  CHECK_FALSE(line.turn(kStart, {}).look);
  CHECK(line.turn(kStart + 1s, {}).look);
  CHECK_FALSE(line.turn(kStart + 1s, {}).look);  // one at a time
  line.looked(kStart + 1s, job(JobState::forming, 4, 3));
  CHECK(row_of(line.turn(kStart + 1s, {})) == "starting: 3 of 4 workers !");
  CHECK(line.deadline() == kStart + 1500ms);
  CHECK(line.turn(kStart + 1500ms, {}).look);
  line.looked(kStart + 1500ms, in_collective(job(JobState::active, 4, 4, 4)));
  CHECK(row_of(line.turn(kStart + 1500ms, {})) == "");
  CHECK(line.deadline() == kNever);  // nothing can change but by an event
  meter.take(0, report(2s, 1, 9));
  CHECK(row_of(line.turn(kStart + 2s, meter.at(kStart + 2s))) == "step 1/9  11%");
  CHECK(row_of(line.turn(kStart + 2s, meter.at(kStart + 2s))) == "unchanged");
  CHECK(line.deadline() == kStart + 3s);
  line.changed();
  CHECK(line.turn(kStart + 3s, meter.at(kStart + 3s)).look);
  JobStatus again = job(JobState::forming, 4, 3);
  again.round = 2;
  line.looked(kStart + 3s, again);
  CHECK(row_of(line.turn(kStart + 3s, meter.at(kStart + 3s))) ==
        "round 2: restarting, 3 of 4 workers !");
}

TEST_CASE("progress line: a change during a look leads to another one") {
  ProgressLine line(true, kStart);
  CHECK(line.turn(kStart + 1s, {}).look);
  line.changed();
  CHECK_FALSE(line.turn(kStart + 1s, {}).look);
  line.looked(kStart + 1s, in_collective(job(JobState::active, 2, 2, 2)));
  CHECK(line.turn(kStart + 1s, {}).look);
}

TEST_CASE("progress line: a program that never joins is looked at less and less often") {
  ProgressLine line(true, kStart);
  int looks = 0;
  for (TimePoint now = kStart; now < kStart + 1h; now = std::max(line.deadline(), now + 1ms)) {
    if (!line.turn(now, {}).look) continue;
    ++looks;
    line.looked(now, job(JobState::active, 2, 2));
    (void)line.turn(now, {});
  }
  CHECK(looks > 60);
  CHECK(looks < 100);
}

TEST_CASE(
    "progress line: where there is no terminal, a line every 30 s, and none for a quick start") {
  ProgressLine line(false, kStart);
  PaceMeter meter;
  std::vector<std::string> printed;
  JobStatus status = job(JobState::forming, 4, 3);
  const auto run = [&](TimePoint from, TimePoint until, bool reports) {
    for (TimePoint now = from; now < until; now += 100ms) {
      if (reports) meter.take(0, report(now - kStart, (now - kStart) / 100ms));
      const auto turn = line.turn(now, meter.at(now));
      CHECK_FALSE(turn.row);
      if (turn.line) printed.push_back(*turn.line);
      if (turn.look) line.looked(now, status);
    }
  };
  run(kStart, kStart + 29s, false);
  CHECK(printed.empty());
  run(kStart + 29s, kStart + 40s, false);
  CHECK(printed == std::vector<std::string>{"starting: 3 of 4 workers"});
  status = in_collective(job(JobState::active, 4, 4, 4));
  line.changed();
  printed.clear();
  run(kStart + 40s, kStart + 125s, true);
  CHECK(printed.size() == 3);
  CHECK(printed.back().starts_with("step 12"));
  run(kStart + 125s, kStart + 600s, false);  // it stands: that is one line
  CHECK(printed.size() == 4);
  CHECK(printed.back().find("no step for") != std::string::npos);
  CHECK_FALSE(line.last_line(meter.at(kStart + 600s)));
  meter.take(0, report(601s, 7000));
  CHECK(line.last_line(meter.at(kStart + 601s))->starts_with("step 7000"));
}
