// Facts of invented jobs, for the tests of the judgement and of the report.
#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "base/rank_set.h"
#include "launcher/lead/report/report.h"
#include "tests/unit/start.h"

namespace dlaunch {

// All ended `ms` after the start; pid is 100 + rank.
inline WorkerEnd worker(int rank, int ms) {
  WorkerEnd w;
  w.rank = w.local_rank = rank;
  w.pid = 100 + rank;
  w.started = kStart;
  w.ended = kStart + std::chrono::milliseconds(ms);
  return w;
}
inline WorkerEnd exited(int rank, int ms, int code) {
  auto w = worker(rank, ms);
  w.exit_code = code;
  return w;
}
inline WorkerEnd killed(int rank, int ms, int signal) {
  auto w = worker(rank, ms);
  w.signal = signal;
  return w;
}
// dlaunch had sent it `signal` before it ended.
inline WorkerEnd told(WorkerEnd w, int signal = SIGTERM) {
  w.signal_we_sent = signal;
  return w;
}
inline WorkerEnd stopped(int rank, int ms, int signal = SIGTERM) {
  return told(killed(rank, ms, signal), signal);
}
// libdlring had told it that `peer` was lost.
inline WorkerEnd lost(int peer, WorkerEnd w) {
  w.peer_lost = peer;
  return w;
}
inline WorkerEnd says(WorkerEnd w, std::vector<std::string> tail) {
  w.stderr_tail = std::move(tail);
  return w;
}
// Its last traceback began `ms` after the start, before any signal of ours.
inline WorkerEnd throws(WorkerEnd w, int ms, std::vector<std::string> lines) {
  w.traceback = Traceback{kStart + std::chrono::milliseconds(ms), std::move(lines), {}};
  return w;
}
inline WorkerEnd notes(WorkerEnd w, std::string error_file) {
  w.error_file = std::move(error_file);
  return w;
}

inline const std::vector<std::string> kReset = {"RuntimeError: Connection reset by peer"};
inline const std::vector<std::string> kTraceback = {"Traceback (most recent call last):", "  f()",
                                                    "ValueError: x"};

inline JobFacts facts(std::vector<WorkerEnd> workers, JobEnding end = JobEnding::worker_failed) {
  JobFacts f;
  f.end = end;
  f.job_id = "job";
  f.host = "h";
  f.program = "train";
  f.nproc = static_cast<int>(workers.size());
  f.started = kStart;
  f.ended = kStart + std::chrono::seconds(9);
  f.grace = std::chrono::seconds(10);
  f.workers = std::move(workers);
  return f;
}

inline RankSet ranks(const JobFacts& f, const std::vector<std::size_t>& group) {
  RankSet out;
  for (const auto i : group) out.insert(f.workers[i].rank);
  return out;
}

}  // namespace dlaunch
