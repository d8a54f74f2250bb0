#include "launcher/node/workers/worker_starter.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/process/open_files.h"

extern char** environ;

namespace dlaunch {
namespace {

// execvp's path if PATH is not set.
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

// A shell such as dash writes to descriptors of one digit only. The second serves if PMI has the
// first.
constexpr int kHeartbeatNumbers[] = {7, 8};

std::string path_of(const std::vector<std::string>& env) {
  for (const auto& item : env) {
    if (item.starts_with("PATH=")) return item.substr(5);
  }
  return kDefaultPath;
}

// With four descriptors for each worker, the usual limit of 1,024 is too low for a few hundred.
Result<rlimit> raise_open_files(int workers) {
  rlimit original{};
  ::getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  if (auto room = check_open_files(workers); !room) return room.error();
  return original;
}

}  // namespace

WorkerStarter::WorkerStarter(const Plan& plan) : plan_(&plan) {
  for (char** item = environ; *item != nullptr; ++item) inherited_.emplace_back(*item);
}

Result<WorkerStarter> WorkerStarter::make(const Plan& plan, const OriginalSignals& original) {
  WorkerStarter starter(plan);
  auto limit = raise_open_files(plan.nproc);
  if (!limit) return limit.error();
  starter.open_files_ = *limit;
  starter.ignore_hangup_ = original.hangup_ignored;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error("pipe", errno);
  starter.failures_reading_.reset(ends[0]);
  // Above the descriptors that a worker gets.
  starter.failures_writing_.reset(::fcntl(ends[1], F_DUPFD_CLOEXEC, kHeartbeatNumbers[1] + 1));
  ::close(ends[1]);
  if (!starter.failures_writing_) return errno_error("pipe", errno);
  return starter;
}

Result<std::string> WorkerStarter::resolve(const SpawnRequest& request) {
  const auto key = std::tuple(request.argv.at(0), request.chdir, path_of(request.env));
  const auto known = programs_.find(key);
  if (known != programs_.end()) return known->second;
  auto found = find_program(request.argv[0], std::get<2>(key), request.chdir);
  if (found) programs_[key] = *found;
  return found;
}

SpawnRequest WorkerStarter::request_for(const WorkerPlace& place) const {
  SpawnRequest request;
  request.argv = worker_arguments(*plan_, place);
  request.chdir = plan_->chdir_of(place.rank);
  const auto index = static_cast<std::size_t>(std::max(place.local_rank, 0));
  if (place.local_rank >= 0 && index < plan_->cpusets.size()) request.cpus = plan_->cpusets[index];
  return request;
}

SpawnError WorkerStarter::foresee_failure(const Plan& plan) {
  if (plan.programs.empty()) return WorkerStarter(plan).foresee_failure_of(0);
  // Only the start decides which of them run here.
  if (plan.nodes.several()) return {};
  for (const JobProgram& program : plan.programs) {
    const auto error = WorkerStarter(plan).foresee_failure_of(*program.ranks.begin());
    if (error.stage != Stage::none) return error;
  }
  return {};
}

SpawnError WorkerStarter::foresee_failure_of(int rank) {
  // A program that differs from rank to rank is only known at its start.
  if (plan_->argv_of(rank).at(0).find("${") != std::string::npos) return {};
  const WorkerPlace place{.rank = rank};
  SpawnRequest request = request_for(place);
  request.env = worker_environment(*plan_, place, inherited_);
  auto program = resolve(request);
  request.path = program ? *program : request.argv[0];
  const SpawnError error = dlaunch::foresee_failure(request);
  if (program || error.stage == Stage::chdir) return error;
  return {Stage::exec, program.error().os_errno, program.error().what};
}

// Opens the writing end that the worker gets, of a new pipe. A full one must not block the program.
Result<UniqueFd> WorkerStarter::open_heartbeat(WorkerPlace& place, UniqueFd& reading) const {
  const bool pmi_has_it = place.pmi_fd == kHeartbeatNumbers[0];
  place.heartbeat_fd = kHeartbeatNumbers[pmi_has_it ? 1 : 0];
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error("pipe", errno);
  reading.reset(ends[0]);
  UniqueFd writing(ends[1]);
  struct stat st {};
  if (::fstat(writing.get(), &st) != 0) return errno_error("fstat", errno);
  place.heartbeat_pipe = st.st_ino;
  return writing;
}

SpawnError WorkerStarter::start(const WorkerPlace& given, const OutputHub::WorkerStdio& stdio,
                                Spawned& worker) {
  WorkerPlace place = given;
  UniqueFd heartbeats;
  const auto heartbeat = open_heartbeat(place, heartbeats);
  if (!heartbeat) return {Stage::stdio, heartbeat.error().os_errno, heartbeat.error().what};
  SpawnRequest request = request_for(place);
  request.env = worker_environment(*plan_, place, inherited_);
  constexpr std::string_view kGpus = "CUDA_VISIBLE_DEVICES=";
  for (const std::string& item : request.env) {
    if (item.starts_with(kGpus)) worker.gpus = item.substr(kGpus.size());
  }
  auto program = resolve(request);
  if (!program) return {Stage::exec, program.error().os_errno, program.error().what};
  request.path = *program;
  request.in = stdio.in.get();
  request.out = stdio.out.get();
  request.err = stdio.err.get();
  request.inherited = place.pmi_fd;
  request.heartbeat = heartbeat->get();
  request.heartbeat_as = place.heartbeat_fd;
  request.open_files = open_files_;
  request.ignore_hangup = ignore_hangup_;
  request.stop_at_start = plan_->debugging.stopped.has(place.rank);
  request.foreground = plan_->debugging.has_terminal(place.rank);
  request.worker = place.worker;
  request.wait_for_exec = place.worker == 1 && !request.stop_at_start;
  request.failure_pipe = failures_writing_.get();
  const SpawnError error = spawn(request, worker);
  if (error.stage == Stage::none) worker.heartbeats = std::move(heartbeats);
  return error;
}

std::optional<SpawnError> WorkerStarter::failure_of(const WorkerPlace& place) {
  SpawnFailure failure{};
  while (::read(failures_reading_.get(), &failure, sizeof failure) == sizeof failure) {
    failures_[failure.worker] = failure;
  }
  const auto found = failures_.find(place.worker);
  if (found == failures_.end()) return std::nullopt;
  SpawnRequest request = request_for(place);
  request.env = worker_environment(*plan_, place, inherited_);
  if (auto program = resolve(request)) request.path = *program;
  return explain_failure(request, found->second.stage, found->second.os_errno);
}

}  // namespace dlaunch
