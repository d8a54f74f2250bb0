#include "cli/ctl/render.h"

#include <doctest/doctest.h>

#include "launcher/lead/control/job_status.h"

using namespace dlaunch;
using namespace dlaunch::ctl;
using namespace std::chrono_literals;

namespace {

JobStatus growing() {
  JobStatus job{.now = TimePoint(1000s),
                .job_id = "j1",
                .host = "h1",
                .program = "./train --fast",
                .state = JobState::forming,
                .round = 3,
                .size = 2,
                .target_size = 4,
                .max_size = 8,
                .waits_for = "rank 1 to start",
                .hosts = {"h2: started again in 2 s: refused"},
                .restarts_used = 1,
                .restarts_left = 2,
                .restarts = {.restarts = 3, .window = 1h},
                .ran = 3700s,
                .workers = {}};
  job.workers.push_back(
      {.slot = 0,
       .rank = 0,
       .host = "h1",
       .pid = 4711,
       .up = true,
       .linked = true,
       .state = "running",
       .ran = 62s,
       .operation = FlightEntry{"barrier #7", FlightState::running, TimePoint(998s), {}}});
  job.workers.push_back(
      {.slot = 1, .rank = 1, .host = "h1", .state = "starting\x1b[2J", .ran = {}, .operation = {}});
  job.workers.push_back({.slot = 2,
                         .rank = -1,
                         .host = "h1",
                         .pid = 12,
                         .up = true,
                         .linked = true,
                         .state = "waiting for a place",
                         .ran = 500ms,
                         .operation = {}});
  return job;
}

}  // namespace

TEST_CASE("the status as text") {
  const auto json = nlohmann::json::parse(render_json(growing()));
  CHECK(render_status(json) ==
        "job j1: ./train --fast\n"
        "forming, round 3, 2 workers growing to 4 (at most 8), for 1 h 1 min\n"
        "waits for rank 1 to start\n"
        "host h2: started again in 2 s: refused\n"
        "restarts: 1 used, 2 left (of 3/1h)\n"
        "\n"
        " RANK   PID  HOST  STATE                FOR        LAST OPERATION\n"
        "    0  4711  h1    running              1 min 2 s  barrier #7, for 2.00 s now\n"
        "    1     -  h1    starting\\x1b[2J      -          -\n"
        "spare    12  h1    waiting for a place  500 ms     -\n");
}

TEST_CASE("the list has a line for each job, also if the job does not answer") {
  const auto status = nlohmann::json::parse(render_json(growing()));
  CHECK(render_list({}) == "");
  CHECK(render_list({{"/tmp/a", status}, {"/tmp/b", nullptr}}) ==
        "JOB  STATE            FOR        SIZE                    PROGRAM\n"
        "j1   forming          1 h 1 min  2 workers growing to 4  ./train --fast\n"
        "?    does not answer  -          -                       /tmp/b\n");
}

TEST_CASE("equal stacks are shown once, below the places of all workers") {
  const auto worker = [](const nlohmann::json& rank, int group, const char* place) {
    return nlohmann::json{{"rank", rank},   {"pid", 7 + group}, {"host", "h1"},
                          {"group", group}, {"place", place},   {"lines", {"  #0 f\x01"}}};
  };
  CHECK(render_stacks(nlohmann::json::array({worker(1, 0, "in f")})) ==
        "rank 1 (pid 7 on h1):\n    #0 f\\x01\n");
  CHECK(render_stacks({worker(0, 0, "in f"), worker(1, 1, "in g"), worker(2, 0, "in f"),
                       worker(nullptr, 1, "in g")}) ==
        "ranks 0,2: in f\n"
        "rank 1 and spares: in g\n"
        "rank 0 (pid 7 on h1):\n    #0 f\\x01\n"
        "rank 1 (pid 8 on h1):\n    #0 f\\x01\n");
  // What is not known may have different reasons.
  CHECK(render_stacks({worker(nullptr, 0, "not known"), worker(3, 0, "not known")}) ==
        "rank 3 and spares: not known\n"
        "spare (pid 7 on h1):\n    #0 f\\x01\n"
        "rank 3 (pid 7 on h1):\n    #0 f\\x01\n");
}

TEST_CASE("ages") {
  CHECK(age(0.0004) == "0 ms");
  CHECK(age(0.31) == "310 ms");
  CHECK(age(7.254) == "7.25 s");
  CHECK(age(59.4) == "59 s");
  CHECK(age(252) == "4 min 12 s");
  CHECK(age(7500) == "2 h 5 min");
  CHECK(age(90000) == "1 d 1 h");
}
