#include "cli/ctl/top.h"

#include <limits>

#include <doctest/doctest.h>

#include "cli/ctl/render.h"
#include "launcher/lead/control/job_status.h"

using namespace dlaunch;
using namespace dlaunch::ctl;
using namespace std::chrono_literals;

namespace {

JobStatus at_work() {
  JobStatus job{.now = TimePoint(1000s),
                .job_id = "j1",
                .host = "h1",
                .program = "./train",
                .state = JobState::active,
                .round = 3,
                .size = 2,
                .target_size = 2,
                .max_size = 4,
                .ran = 62s,
                .workers = {}};
  WorkerStatus first{
      .slot = 0,
      .rank = 0,
      .host = "h1",
      .pid = 4711,
      .up = true,
      .state = "running",
      .ran = 60s,
      .operation = FlightEntry{"barrier #7", FlightState::running, TimePoint(998s), {}}};
  first.step_s = 0.02;
  first.wait_s = 0.005;
  first.figures.round = 3;
  first.figures.cpu = 30s;
  first.figures.memory = 3ULL << 29;
  first.figures.rate = {.operations = 10, .bytes = 5'000'000'000, .over = 5s};
  job.workers.push_back(first);
  job.workers.push_back(
      {.slot = 1, .rank = 1, .host = "h2", .state = "starting\x1b[2J", .ran = {}, .operation = {}});
  return job;
}

nlohmann::json json_of(const JobStatus& job) { return nlohmann::json::parse(render_json(job)); }

}  // namespace

TEST_CASE("top: what each worker does") {
  CHECK(render_top(json_of(at_work()), nullptr) ==
        "job j1: active, round 3, 2 of at most 4 workers, for 1 min 2 s\n"
        "RANK   PID  ROUND  CPU%   MEMORY  OP/S    DATA  STEP MS  WAIT%  HOST  STATE            "
        "OPERATION\n"
        "   0  4711      3    50  1.5 GiB   2.0  1 GB/s       20     25  h1    running          "
        "barrier #7 for "
        "2.00 s\n"
        "   1     -      -     -        -     -       -        -      -  h2    starting\\x1b[2J  "
        "-\n");
}

TEST_CASE("top: its head shows the goodput, and the rank that cost most") {
  JobStatus job = at_work();
  CHECK(render_top(json_of(job), nullptr).find("goodput") == std::string::npos);
  job.goodput = GoodputSummary();  // no rank has begun
  CHECK(render_top(json_of(job), nullptr).find("goodput") == std::string::npos);
  job.goodput->totals.total = 200s;
  job.goodput->totals.compute = 150s;
  job.goodput->totals.transfer = 20s;
  CHECK(render_top(json_of(job), nullptr).find("\ngoodput 85.0 %\nRANK") != std::string::npos);
  job.goodput->culprit = 3;
  job.goodput->cost = 9s;
  job.goodput->cause = "compute";
  const auto shows = [&](const std::string& line) {
    return render_top(json_of(job), nullptr).find("\n" + line + "\nRANK") != std::string::npos;
  };
  CHECK(shows("goodput 85.0 %; rank 3 cost most, 4.5 % (compute)"));
  job.goodput->cause = "link";
  job.goodput->host = "b\x1b";
  CHECK(shows("goodput 85.0 %; rank 3 (b\\x1b) cost most, 4.5 % (link)"));
  job.goodput->culprit = -1;
  job.goodput->cause = "host";
  CHECK(shows("goodput 85.0 %; b\\x1b cost most, 4.5 %: waits for the busy host"));
  job.goodput->cost = 0s;  // nothing has cost anything
  CHECK(shows("goodput 85.0 %"));
}

TEST_CASE("top and status: their head names the ranks for which others wait") {
  JobStatus job = at_work();
  job.late.push_back({.ranks = {1}, .waiting = {0}, .waited = 9s, .text = "rank 1 is late\x1b"});
  const auto lines = [&] { return late_in_words(json_of(job)); };
  CHECK(lines() == "rank 1 is late\\x1b\n");
  CHECK(render_top(json_of(job), nullptr).find(" for 1 min 2 s\n" + lines() + "RANK") !=
        std::string::npos);
  CHECK(render_status(json_of(job)).find("\n" + lines() + "restarts: ") != std::string::npos);
  for (int more = 0; more < 3; ++more) job.late.push_back(job.late[0]);
  CHECK(lines().ends_with("\nrank 1 is late\\x1b\nand 1 more\n"));
  nlohmann::json earlier = json_of(job);
  earlier.erase("late");
  CHECK(late_in_words(earlier).empty());
}

// The mean wait may exceed the mean step, as they are not of the same collectives.
TEST_CASE("top: no worker waits for more than all of its time") {
  JobStatus job = at_work();
  job.workers[0].wait_s = 0.0308;
  CHECK(render_top(json_of(job), nullptr).find("      20    100  h1") != std::string::npos);
}

TEST_CASE("top: CPU time since the look before, and of that process only") {
  const auto row = [](const JobStatus& now, const JobStatus& before) {
    const std::string text = render_top(json_of(now), json_of(before));
    return text.substr(text.find("\n   0") + 1);
  };
  const JobStatus before = at_work();
  JobStatus now = at_work();
  now.workers[0].ran = 62s;
  now.workers[0].figures.cpu = 33s;
  CHECK(row(now, before).starts_with("   0  4711      3   150  "));
  now.workers[0].pid = 4712;
  CHECK(row(now, before).starts_with("   0  4712      3    53  "));
}

TEST_CASE("top: GPUs have columns if a worker has one") {
  JobStatus job = at_work();
  auto& figures = job.workers[0].figures;
  figures.gpus_known = true;
  CHECK(json_of(job)["workers"][0]["gpus"].empty());
  CHECK(json_of(job)["workers"][0]["gpus"].is_array());
  CHECK(json_of(job)["workers"][1]["gpus"].is_null());
  CHECK(render_top(json_of(job), nullptr).find("GPU%") == std::string::npos);
  figures.gpus = {{.number = 2,
                   .utilisation = 80,
                   .temperature = 61,
                   .memory_used = 2ULL << 30,
                   .memory_total = 8ULL << 30,
                   .ecc_errors = 0},
                  {.number = 3,
                   .utilisation = 90,
                   .temperature = 70,
                   .memory_used = 1ULL << 30,
                   .memory_total = 8ULL << 30,
                   .ecc_errors = 2}};
  const std::string text = render_top(json_of(job), nullptr);
  CHECK(text.find("GPU  GPU%       GPU MEMORY  TEMP  ECC  HOST") != std::string::npos);
  CHECK(text.find("2,3    85  3 GiB of 16 GiB    70    2  h1  ") != std::string::npos);
  figures.gpus = {
      {.number = 1, .instance = 4, .memory_used = 1ULL << 30, .memory_total = 8ULL << 30}};
  CHECK(render_top(json_of(job), nullptr).find("1:4     -  1 GiB of 8 GiB     -    -  h1") !=
        std::string::npos);
  figures.gpus = {{.number = 0}};
  CHECK(render_top(json_of(job), nullptr).find("0     -  0 MiB of 0 MiB     -    -  h1") !=
        std::string::npos);
}

TEST_CASE("top: the table fits on the screen") {
  CHECK(cut_to_screen("one\ntwo\nthree\n", 2, 80) == "one\ntwo");
  CHECK(cut_to_screen("one\ntwo\n", 5, 2) == "on\ntw\n");
  CHECK(cut_to_screen("1°C\n", 5, 2) == "1°\n");
}

TEST_CASE("top and status: how far the program is") {
  JobStatus job = at_work();
  CHECK(json_of(job).at("progress").is_null());
  job.pace = RunPace{
      .rank = 0,
      .last = {.step = 1200,
               .total = 5000,
               .values = {{"loss", 1.83}, {"norm", std::numeric_limits<double>::infinity()}}},
      .age = 500ms,
      .steps_per_s = 12.5,
      .left = 304s};
  const auto progress = json_of(job).at("progress");
  CHECK(progress.at("step") == 1200);
  CHECK(progress.at("total") == 5000);
  CHECK(progress.at("left_s") == 304);
  CHECK(progress.at("values").at("loss") == 1.83);
  CHECK(progress.at("values").at("norm").is_null());
  const std::string line =
      "step 1200/5000  24%  12.5 steps/s  ETA 5m04s  loss 1.83  norm nan, 500 ms ago\n";
  CHECK(render_top(json_of(job), nullptr).find("\n" + line + "RANK") != std::string::npos);
  job.pace->last.total = 0;
  job.pace->steps_per_s.reset();
  job.pace->left.reset();
  CHECK(json_of(job).at("progress").at("total").is_null());
  CHECK(progress_in_words(json_of(job)) == "step 1200  loss 1.83  norm nan, 500 ms ago\n");
}
