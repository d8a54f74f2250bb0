// The agent shell: one thread, one loop. It performs what AgentCore decides and reports back what
// happened to the processes.

#include "launcher/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <memory>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/secret.h"
#include "elastic/agent_core.h"
#include "launcher/job_dir.h"
#include "launcher/keeper.h"
#include "launcher/oom.h"
#include "launcher/output_hub.h"
#include "launcher/port_reservation.h"
#include "launcher/process_tree.h"
#include "launcher/report.h"
#include "launcher/spawn.h"
#include "launcher/topology.h"
#include "launcher/worker_env.h"
#include "rendezvous/store_server.h"

extern char** environ;

namespace dlaunch {
namespace {

constexpr std::size_t kTailLines = 20;
constexpr std::size_t kMaxErrorFile = 1 << 20;

std::string read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxErrorFile, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string value_of(const std::vector<std::string>& env, const std::string& name) {
  for (const auto& item : env) {
    if (item.starts_with(name + "=")) return item.substr(name.size() + 1);
  }
  return "";
}

// One worker of the current round.
struct Worker {
  explicit Worker(asio::io_context& loop) : exited(loop) {}
  pid_t pid = -1;
  asio::posix::stream_descriptor exited;  // the pidfd
  TimePoint started{};
  int signal_sent = 0;
  bool running = false;
};

class Agent {
 public:
  Agent(const Plan& plan, const JobDir& job_dir, UniqueFd signals, const OriginalSignals& original);
  int run();

 private:
  bool set_up();
  bool raise_open_files();
  void watch_keeper();
  void watch_orphans();
  void feed(const AgentCore::Event& event);
  void perform(const AgentCore::Action& action);
  void spawn_worker(const AgentCore::Spawn& what);
  void begin_round(int round);
  SpawnRequest request_for(int worker, const OutputHub::WorkerStdio& stdio);
  void spawn_failed(int worker, const SpawnError& error);
  void note_spawn_failure(int worker, const SpawnError& error);
  void read_spawn_failures();
  void watch_worker(int worker);
  void reap_worker(int worker);
  WorkerEnd describe_end(int worker, const siginfo_t& info);
  void signal_worker(const AgentCore::SendSignal& what);
  void finish(const AgentCore::Finish& how);
  void write_error_file(const std::string& json);
  void arm_timer();

  const Plan& plan_;
  const JobDir& job_dir_;
  const OriginalSignals original_;
  asio::io_context loop_{1};
  asio::posix::stream_descriptor keeper_;
  asio::signal_set children_;
  asio::steady_timer timer_;
  AgentCore core_;
  std::unique_ptr<StoreServer> store_;
  std::unique_ptr<OutputHub> hub_;
  PortReservation master_port_;
  rlimit open_files_{};
  WorkerPlace place_;
  std::vector<std::string> inherited_;
  std::string program_;  // resolved
  std::vector<std::unique_ptr<Worker>> workers_;
  std::deque<AgentCore::Event> events_;
  UniqueFd failures_reading_, failures_writing_;
  bool pumping_ = false;
  unsigned char signal_byte_ = 0;
  OomCounter oom_before_;
  JobFacts facts_;
  int exit_code_ = 0;
};

Agent::Agent(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
             const OriginalSignals& original)
    : plan_(plan),
      job_dir_(job_dir),
      original_(original),
      keeper_(loop_, signals.release()),
      children_(loop_),
      timer_(loop_),
      core_({plan.nproc, plan.grace, plan.timeout, plan.max_restarts}) {
  for (char** item = environ; *item != nullptr; ++item) inherited_.emplace_back(*item);
  facts_.job_id = plan.job_id;
  facts_.host = plan.host;
  facts_.program = plan.argv.at(0);
  facts_.nproc = plan.nproc;
  facts_.max_restarts = plan.max_restarts;
  facts_.grace = plan.grace;
  facts_.started = steady_now();
}

int Agent::run() {
  if (!set_up()) return exit_code_;
  watch_keeper();
  watch_orphans();
  feed(AgentCore::Start{});
  loop_.run();
  set_log_sink({});
  return exit_code_;
}

// What must be there before the first worker. On failure: one line, and the exit code.
bool Agent::set_up() {
  auto failed = [&](int code, const Error& error) {
    log_error("{}", error.what);
    exit_code_ = code;
    return false;
  };
  if (!raise_open_files()) return false;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return failed(kExitSystem, errno_error("pipe", errno));
  }
  failures_reading_.reset(ends[0]);
  failures_writing_.reset(ends[1]);
  oom_before_ = read_oom_counter();

  auto secret = plan_.secret_file.empty() ? Secret::random() : Secret::load(plan_.secret_file);
  if (!secret) return failed(kExitNoInput, secret.error());
  auto file = job_dir_.write_secret(*secret);
  if (!file) return failed(kExitCannotCreate, file.error());
  place_.secret_file = *file;

  auto listen = parse_endpoint(plan_.store_listen);
  if (!listen) return failed(kExitUsage, listen.error());
  auto store = StoreServer::open(loop_, {*listen, plan_.job_id, *secret});
  if (!store) return failed(kExitRendezvous, store.error());
  store_ = std::move(*store);
  place_.store_url = "tcp://" + to_string(store_->endpoint());

  auto port = reserve_port(plan_.master_addr, static_cast<std::uint16_t>(plan_.master_port));
  if (!port) return failed(kExitRendezvous, port.error());
  master_port_ = std::move(*port);
  place_.master_port = master_port_.port;
  place_.usable_cores = usable_cpus().usable();

  hub_ = std::make_unique<OutputHub>(loop_, plan_);
  set_log_sink([this](LogLevel, std::string_view line) { hub_->own_line(line); });
  return true;
}

// Three descriptors a worker are more than the usual 1,024 allow for a few hundred of them.
bool Agent::raise_open_files() {
  ::getrlimit(RLIMIT_NOFILE, &open_files_);
  rlimit raised = open_files_;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  const auto needed = static_cast<rlim_t>(plan_.nproc) * 6 + 64;
  ::getrlimit(RLIMIT_NOFILE, &raised);
  if (raised.rlim_cur >= needed) return true;
  log_error("{} workers need {} open files, but the limit is {}: raise it with ulimit -Hn",
            plan_.nproc, needed, raised.rlim_cur);
  exit_code_ = kExitSystem;
  return false;
}

// Signals come as bytes; the end of the pipe means that the keeper was killed.
void Agent::watch_keeper() {
  keeper_.async_read_some(asio::buffer(&signal_byte_, 1),
                          [this](asio::error_code ec, std::size_t n) {
                            if (ec || n == 0) {
                              kill_descendants();
                              job_dir_.remove();
                              ::_exit(128 + SIGKILL);
                            }
                            if (core_.state() == AgentState::ended) {
                              // Only the reader of our output holds us up: the user does not want
                              // to wait for it.
                              loop_.stop();
                              return;
                            }
                            feed(AgentCore::Signal{signal_byte_});
                            watch_keeper();
                          });
}

// Orphans of workers come back to us, the subreaper, and are ours to reap.
void Agent::watch_orphans() {
  asio::error_code ec;
  children_.add(SIGCHLD, ec);
  children_.async_wait([this](asio::error_code error, int) {
    if (error) return;
    siginfo_t info{};
    while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
      const bool worker = std::any_of(workers_.begin(), workers_.end(), [&](const auto& w) {
        return w && w->running && w->pid == info.si_pid;
      });
      if (worker) break;  // its pidfd tells; that reaps the rest, too
      ::waitpid(info.si_pid, nullptr, WNOHANG);
      info = {};
    }
    watch_orphans();
  });
}

// Performing an action may cause an event; events queue up so that the core is never re-entered.
void Agent::feed(const AgentCore::Event& event) {
  events_.push_back(event);
  if (std::exchange(pumping_, true)) return;
  while (!events_.empty()) {
    const AgentCore::Event next = events_.front();
    events_.pop_front();
    for (const auto& action : core_.step(steady_now(), next)) perform(action);
  }
  pumping_ = false;
  arm_timer();
}

void Agent::arm_timer() {
  const auto deadline = core_.deadline();
  if (!deadline) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*deadline);
  timer_.async_wait([this](asio::error_code ec) {
    if (!ec) feed(AgentCore::Clock{});
  });
}

void Agent::perform(const AgentCore::Action& action) {
  if (const auto* spawn = std::get_if<AgentCore::Spawn>(&action)) {
    spawn_worker(*spawn);
  } else if (const auto* send = std::get_if<AgentCore::SendSignal>(&action)) {
    signal_worker(*send);
  } else if (const auto* end = std::get_if<AgentCore::Finish>(&action)) {
    finish(*end);
  } else {
    for (auto& worker : workers_) {
      if (worker && worker->running) worker->signal_sent = SIGKILL;
    }
    kill_descendants_once();
  }
}

void Agent::begin_round(int round) {
  if (round > 1) {
    facts_.end = JobEnd::worker_failed;
    const auto verdict = judge(facts_);
    const auto lines = render_text(facts_, verdict, false);
    log_warn("{}; restarting all workers: round {}, {} of {} restarts used",
             lines.empty() ? "a worker failed" : lines.front(), round, round - 1,
             plan_.max_restarts);
  }
  facts_.end = JobEnd::succeeded;
  facts_.round = place_.round = round;
  facts_.restarts_used = round - 1;
  facts_.workers.clear();
  workers_.clear();
  workers_.resize(static_cast<std::size_t>(plan_.nproc));
}

void Agent::spawn_worker(const AgentCore::Spawn& what) {
  if (what.worker == 0) begin_round(what.round);
  auto worker = std::make_unique<Worker>(loop_);
  if (what.worker == 0) {
    auto dir = job_dir_.make_round_dir(what.round);
    if (!dir) {
      return spawn_failed(what.worker, {Stage::stdio, dir.error().os_errno, dir.error().what});
    }
    place_.round_dir = *dir;
  }
  auto stdio = hub_->open_worker(what.round, what.worker);
  if (!stdio) {
    facts_.end = JobEnd::setup_failed;
    return spawn_failed(what.worker, {Stage::stdio, stdio.error().os_errno, stdio.error().what});
  }
  place_.local_rank = what.worker;

  if (program_.empty()) {
    auto found = find_program(worker_arguments(plan_, place_)[0],
                              value_of(worker_environment(plan_, place_, inherited_), "PATH"));
    if (!found) {
      return spawn_failed(what.worker, {Stage::exec, found.error().os_errno, found.error().what});
    }
    program_ = *found;
  }
  const SpawnRequest request = request_for(what.worker, *stdio);
  Spawned spawned;
  worker->started = steady_now();
  if (const auto error = spawn(request, spawned); error.stage != Stage::none) {
    return spawn_failed(what.worker, error);
  }
  worker->pid = spawned.pid;
  worker->running = true;
  asio::error_code ec;
  worker->exited.assign(spawned.pidfd.release(), ec);
  workers_[static_cast<std::size_t>(what.worker)] = std::move(worker);
  watch_worker(what.worker);
  feed(AgentCore::Spawned{});
}

SpawnRequest Agent::request_for(int worker, const OutputHub::WorkerStdio& stdio) {
  SpawnRequest request;
  request.path = program_;
  request.argv = worker_arguments(plan_, place_);
  request.env = worker_environment(plan_, place_, inherited_);
  request.chdir = plan_.chdir;
  const auto local_rank = static_cast<std::size_t>(worker);
  if (local_rank < plan_.cpusets.size()) request.cpus = plan_.cpusets[local_rank];
  request.in = stdio.in.get();
  request.out = stdio.out.get();
  request.err = stdio.err.get();
  request.open_files = open_files_;
  request.ignore_hangup = original_.hangup_ignored;
  request.local_rank = worker;
  request.wait_for_exec = worker == 0;
  request.failure_pipe = failures_writing_.get();
  return request;
}

// A forked worker that did not get as far as exec: its exit was none of the program's.
void Agent::read_spawn_failures() {
  SpawnFailure failure{};
  while (::read(failures_reading_.get(), &failure, sizeof failure) == sizeof failure) {
    SpawnRequest request;
    request.path = program_;
    request.argv = plan_.argv;
    request.chdir = plan_.chdir;
    note_spawn_failure(failure.local_rank,
                       explain_failure(request, failure.stage, failure.os_errno));
  }
}

void Agent::note_spawn_failure(int worker, const SpawnError& error) {
  facts_.failed_local_rank = worker;
  facts_.failed_stage = error.stage;
  facts_.failed_errno = error.os_errno;
  facts_.failed_what = error.what;
}

void Agent::spawn_failed(int worker, const SpawnError& error) {
  note_spawn_failure(worker, error);
  feed(AgentCore::SpawnFailed{});
}

void Agent::watch_worker(int worker) {
  workers_[static_cast<std::size_t>(worker)]->exited.async_wait(
      asio::posix::stream_descriptor::wait_read, [this, worker](asio::error_code ec) {
        if (!ec) reap_worker(worker);
      });
}

void Agent::reap_worker(int worker) {
  auto& w = *workers_[static_cast<std::size_t>(worker)];
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(w.pid), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return watch_worker(worker);
  }
  w.running = false;
  asio::error_code ec;
  w.exited.close(ec);
  hub_->worker_ended(worker);
  if (info.si_code == CLD_EXITED && info.si_status == 127) read_spawn_failures();
  facts_.workers.push_back(describe_end(worker, info));
  feed(AgentCore::Exited{worker, info.si_code == CLD_EXITED && info.si_status == 0});
}

WorkerEnd Agent::describe_end(int worker, const siginfo_t& info) {
  const auto& w = *workers_[static_cast<std::size_t>(worker)];
  WorkerEnd end;
  end.rank = end.local_rank = worker;
  end.pid = w.pid;
  end.started = w.started;
  end.ended = steady_now();
  if (info.si_code == CLD_EXITED)
    end.exit_code = info.si_status;
  else
    end.signal = info.si_status;
  end.core_dumped = info.si_code == CLD_DUMPED;
  end.signal_we_sent = w.signal_sent;
  if (end.signal == 0 && end.exit_code == 0) return end;
  if (end.signal == SIGKILL && w.signal_sent != SIGKILL) {
    end.oom_text = describe_oom(oom_before_, read_oom_counter());
    end.oom_evidence = !end.oom_text.empty();
  }
  end.stderr_tail = hub_->stderr_tail(worker, kTailLines);
  end.error_file = read_small_file(place_.round_dir + "/error." + std::to_string(worker) + ".json");
  const std::string note =
      read_small_file(place_.round_dir + "/peer_lost." + std::to_string(worker));
  if (!note.empty()) end.peer_lost = std::atoi(note.c_str());
  return end;
}

void Agent::signal_worker(const AgentCore::SendSignal& what) {
  auto& worker = *workers_[static_cast<std::size_t>(what.worker)];
  if (what.number == SIGTERM || what.number == SIGINT || what.number == SIGHUP ||
      what.number == SIGQUIT) {
    worker.signal_sent = what.number;
  }
  if (::kill(-worker.pid, what.number) != 0) ::kill(worker.pid, what.number);
}

JobEnd job_end(AgentEnd end) {
  switch (end) {
    case AgentEnd::succeeded:
      return JobEnd::succeeded;
    case AgentEnd::worker_failed:
      return JobEnd::worker_failed;
    case AgentEnd::spawn_failed:
      return JobEnd::spawn_failed;
    case AgentEnd::interrupted:
      return JobEnd::interrupted;
    case AgentEnd::timed_out:
      return JobEnd::timed_out;
  }
  return JobEnd::succeeded;
}

void Agent::finish(const AgentCore::Finish& how) {
  // With every worker reaped, whatever is left is nobody's to wait for.
  if (how.all_reaped) kill_descendants();
  if (facts_.end != JobEnd::setup_failed) facts_.end = job_end(how.end);
  if (facts_.end == JobEnd::worker_failed && facts_.failed_stage != Stage::none) {
    facts_.end = JobEnd::spawn_failed;
  }
  facts_.signal_received = how.signal;
  facts_.ended = steady_now();
  for (int r = 0; r < plan_.nproc; ++r) {
    const auto& worker = workers_[static_cast<std::size_t>(r)];
    if (worker && worker->running) facts_.still_running.push_back(r);
  }
  const Verdict verdict = judge(facts_);
  exit_code_ = verdict.exit_code;
  if (!plan_.error_file.empty()) write_error_file(render_json(facts_, verdict));
  for (const auto& line : render_text(facts_, verdict, plan_.output.color)) {
    hub_->own_line("dlaunch: " + line);
  }
  hub_->close_stdin();
  hub_->flush(Duration::max(), [this] { loop_.stop(); });
}

void Agent::write_error_file(const std::string& json) {
  const std::string fresh = plan_.error_file + ".new";
  std::ofstream file(fresh);
  file << json << "\n";
  file.close();
  if (!file || ::rename(fresh.c_str(), plan_.error_file.c_str()) != 0) {
    log_warn("{}", errno_error("write --error-file " + plan_.error_file, errno).what);
    ::unlink(fresh.c_str());
  }
}

}  // namespace

int run_job(const Plan& plan) {
  const char* tmp = ::getenv("TMPDIR");
  auto job_dir = JobDir::make(tmp != nullptr && *tmp != '\0' ? tmp : "/tmp");
  if (!job_dir) {
    log_error("{}", job_dir.error().what);
    return kExitCannotCreate;
  }
  return run_kept(
      [&](UniqueFd signals, const OriginalSignals& original) {
        return Agent(plan, *job_dir, std::move(signals), original).run();
      },
      [&] { job_dir->remove(); });
}

}  // namespace dlaunch
