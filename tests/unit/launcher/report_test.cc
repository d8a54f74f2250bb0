#include "launcher/report.h"

#include <signal.h>

#include <cerrno>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/exit_code.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart(1000s);

// Ended `ms` after the start.
WorkerEnd worker(int rank, int ms) {
  WorkerEnd w;
  w.rank = w.local_rank = rank;
  w.pid = 100 + rank;
  w.started = kStart;
  w.ended = kStart + std::chrono::milliseconds(ms);
  return w;
}
WorkerEnd exited(int rank, int ms, int code) {
  auto w = worker(rank, ms);
  w.exit_code = code;
  return w;
}
WorkerEnd killed(int rank, int ms, int signal) {
  auto w = worker(rank, ms);
  w.signal = signal;
  return w;
}
WorkerEnd stopped(int rank, int ms, int signal) {
  auto w = killed(rank, ms, signal);
  w.signal_we_sent = signal;
  return w;
}
WorkerEnd lost(int rank, int ms, int peer) {
  auto w = exited(rank, ms, 1);
  w.peer_lost = peer;
  return w;
}
WorkerEnd says(WorkerEnd w, std::vector<std::string> tail) {
  w.stderr_tail = std::move(tail);
  return w;
}

JobFacts facts(std::vector<WorkerEnd> workers, JobEnd end = JobEnd::worker_failed) {
  JobFacts f;
  f.end = end;
  f.job_id = "job";
  f.host = "h";
  f.program = "train";
  f.nproc = static_cast<int>(workers.size());
  f.started = kStart;
  f.ended = kStart + 9s;
  f.grace = 10s;
  f.workers = std::move(workers);
  return f;
}

int root_rank(const JobFacts& f) {
  const auto verdict = judge(f);
  return verdict.root ? f.workers[*verdict.root].rank : -1;
}

}  // namespace

TEST_CASE("the earliest own failure is the root, and its code is ours") {
  const auto f =
      facts({exited(1, 10, 0), exited(2, 50, 7), stopped(0, 60, SIGTERM), exited(3, 70, 9)});
  const auto verdict = judge(f);
  CHECK(root_rank(f) == 2);
  CHECK(verdict.exit_code == 7);
  CHECK(verdict.stopped == std::vector<std::size_t>{2});
  CHECK(verdict.own_failures == std::vector<std::size_t>{3});
  CHECK(judge(facts({killed(0, 5, SIGSEGV)})).exit_code == 139);
}

TEST_CASE("a worker that libdlring told of a lost peer is a consequence, though it ended first") {
  const auto f = facts({lost(0, 10, 2), lost(1, 11, 2), killed(2, 12, SIGSEGV)});
  CHECK(root_rank(f) == 2);
  CHECK(judge(f).consequences.size() == 2);
  // Killed by a signal of its own, it failed by itself all the same.
  auto crashed = killed(0, 10, SIGABRT);
  crashed.peer_lost = 2;
  CHECK(root_rank(facts({crashed, killed(2, 12, SIGSEGV)})) == 0);
}

TEST_CASE("a broken connection is a consequence only if another failed at about the same time") {
  const auto reset = says(exited(0, 10, 1), {"RuntimeError: Connection reset by peer"});
  CHECK(root_rank(facts({reset, exited(1, 1500, 3)})) == 1);
  CHECK(root_rank(facts({reset, exited(1, 4000, 3)})) == 0);
  CHECK(root_rank(facts({reset, stopped(1, 4000, SIGTERM)})) == 0);
  const auto long_ago =
      says(exited(0, 10, 1), {"Broken pipe", "1", "2", "3", "4", "5", "6", "7", "8"});
  CHECK(root_rank(facts({long_ago, exited(1, 20, 3)})) == 0);
}

TEST_CASE("everybody lost a peer that left early: said as such") {
  const auto f = facts({exited(1, 5, 0), lost(0, 10, 1)});
  CHECK(root_rank(f) == 0);
  CHECK(render_text(f, judge(f), false)[0].find("rank 1 left early") != std::string::npos);
}

TEST_CASE("exit codes of our own") {
  CHECK(judge(facts({}, JobEnd::succeeded)).exit_code == 0);
  CHECK(judge(facts({}, JobEnd::timed_out)).exit_code == kExitTimeout);
  CHECK(judge(facts({}, JobEnd::setup_failed)).exit_code == kExitCannotCreate);
  auto f = facts({}, JobEnd::interrupted);
  f.signal_received = SIGTERM;
  CHECK(judge(f).exit_code == 143);
  f = facts({}, JobEnd::spawn_failed);
  f.failed_stage = Stage::exec;
  f.failed_errno = ENOENT;
  CHECK(judge(f).exit_code == kExitNotFound);
  f.failed_errno = EACCES;
  CHECK(judge(f).exit_code == kExitCannotExec);
  f.failed_stage = Stage::chdir;
  CHECK(judge(f).exit_code == kExitSystem);
}

TEST_CASE("the text of a failure") {
  auto root = says(exited(2, 1203, 7), {"loading", "disk on fire"});
  auto second = stopped(1, 2000, SIGKILL);
  const auto f =
      facts({root, stopped(0, 1210, SIGTERM), second, killed(3, 1204, SIGSEGV), lost(4, 1205, 2)});
  CHECK(render_text(f, judge(f), false) ==
        std::vector<std::string>{
            "rank 2 (pid 102 on h) failed first: exit code 7 after 1.203 s",
            "  last lines of its stderr:",
            "    loading",
            "    disk on fire",
            "  1 ms later: rank 3 (pid 103): killed by SIGSEGV (segmentation fault)",
            "  in consequence: rank 4 lost the connection to a peer",
            "  stopped: ranks 0-1 got SIGTERM (terminated); 1 had to be killed after the grace of "
            "10 s",
        });
  CHECK(render_text(facts({}, JobEnd::succeeded), {}, false).empty());
}

TEST_CASE("a Python error file is shown instead of stderr, whatever its shape") {
  auto root = says(exited(0, 5, 1), {"noise"});
  root.error_file =
      R"({"message": {"message": "E: x", "extraInfo": {"py_callstack": "Traceback\n  f()\nE: x"}}})";
  auto lines = render_text(facts({root}), judge(facts({root})), false);
  CHECK(lines ==
        std::vector<std::string>{"rank 0 (pid 100 on h) failed first: exit code 1 after 5 ms",
                                 "  its error:", "    Traceback", "      f()", "    E: x"});
  root.error_file = R"({"message": "plain"})";
  lines = render_text(facts({root}), judge(facts({root})), false);
  CHECK(lines.back() == "    plain");
  for (const char* odd :
       {"not json", "[]", "{}", R"({"message": 7})", R"({"message": {"extraInfo": 3}})"}) {
    root.error_file = odd;
    CHECK(render_text(facts({root}), judge(facts({root})), false).back() == "    noise");
  }
}

TEST_CASE("out of memory is told with its evidence") {
  auto root = killed(1, 5, SIGKILL);
  CHECK(render_text(facts({root}), judge(facts({root})), false)[1].find("nothing here sent") !=
        std::string::npos);
  root.oom_evidence = true;
  root.oom_text = "memory cgroup /j: out-of-memory kills rose from 0 to 1";
  CHECK(render_text(facts({root}), judge(facts({root})), false)[1].find("rose from 0 to 1") !=
        std::string::npos);
}

TEST_CASE("the JSON holds everything, and bytes that are no UTF-8 do not break it") {
  auto root = says(exited(2, 1203, 7), {"bad \xff byte"});
  root.error_file = R"({"message": "m"})";
  const auto f = facts({root, stopped(0, 1300, SIGTERM)});
  const auto json = nlohmann::json::parse(render_json(f, judge(f)));
  CHECK(json["exit_code"] == 7);
  CHECK(json["root_cause"]["rank"] == 2);
  CHECK(json["root_cause"]["ended_ns"] == 1203000000);
  CHECK(json["root_cause"]["error"]["message"] == "m");
  CHECK(json["others"][0]["role"] == "stopped");
}
