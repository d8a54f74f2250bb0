// The agent shell: one thread, one loop. It performs what AgentCore decides and reports back what
// happened to the processes.

#include "launcher/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>

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
#include "launcher/worker_evidence.h"
#include "launcher/worker_starter.h"
#include "rendezvous/store_server.h"

namespace dlaunch {
namespace {

constexpr std::size_t kTailLines = 20;

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
  Result<void> check_kernel() const;
  void watch_keeper();
  void on_keeper_signal(int signal);
  void watch_orphans();
  void reap_orphans();
  void feed(const AgentCore::Event& event);
  void perform(const AgentCore::Action& action);
  bool begin_round(int round);
  void spawn_worker(const AgentCore::Spawn& what);
  void spawn_failed(int worker, const SpawnError& error);
  void setup_failed(int worker, const Error& error);
  void watch_worker(int worker);
  void reap_worker(int worker);
  WorkerEnd describe_end(int worker, const siginfo_t& info);
  void signal_worker(const AgentCore::SendSignal& what);
  void kill_tree();
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
  WorkerPlace place_;
  std::optional<WorkerStarter> starter_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::deque<AgentCore::Event> events_;
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
  auto kernel = check_kernel();
  if (!kernel) return failed(kExitSystem, kernel.error());
  auto starter = WorkerStarter::make(plan_, original_);
  if (!starter) return failed(kExitSystem, starter.error());
  starter_ = std::move(*starter);
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

Result<void> Agent::check_kernel() const {
  const UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (self || errno != ENOSYS) return {};
  return Error{.code = Errc::unsupported,
               .what = "this kernel has no pidfds: dlaunch needs Linux 5.3 or later",
               .os_errno = ENOSYS};
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
                            on_keeper_signal(signal_byte_);
                            watch_keeper();
                          });
}

void Agent::on_keeper_signal(int signal) {
  if (core_.state() != AgentState::ended) return feed(AgentCore::Signal{signal});
  // Only the reader of our output holds us up: the user does not want to wait for it.
  if (ends_the_job(signal)) loop_.stop();
}

// Orphans of workers come back to us, the subreaper, and are ours to reap.
void Agent::watch_orphans() {
  asio::error_code ec;
  children_.add(SIGCHLD, ec);
  children_.async_wait([this](asio::error_code error, int) {
    if (error) return;
    reap_orphans();
    watch_orphans();
  });
}

void Agent::reap_orphans() {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    const bool worker = std::any_of(workers_.begin(), workers_.end(), [&](const auto& w) {
      return w && w->running && w->pid == info.si_pid;
    });
    if (worker) return;  // its pidfd tells, and then we are called again
    ::waitpid(info.si_pid, nullptr, WNOHANG);
    info = {};
  }
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
    kill_tree();
  }
}

void Agent::kill_tree() {
  bool any_running = false;
  for (auto& worker : workers_) {
    if (!worker || !worker->running) continue;
    any_running = true;
    worker->signal_sent = SIGKILL;
    ::kill(-worker->pid, SIGKILL);
    ::kill(worker->pid, SIGKILL);  // just forked, it may not lead its group yet
  }
  if (any_running)
    kill_descendants_once();
  else
    kill_descendants();  // what a finished round has left is nobody's to wait for
}

bool Agent::begin_round(int round) {
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
  auto dir = job_dir_.make_round_dir(round);
  if (!dir) {
    setup_failed(0, dir.error());
    return false;
  }
  place_.round_dir = *dir;
  starter_->begin_round(place_);
  return true;
}

void Agent::spawn_worker(const AgentCore::Spawn& what) {
  if (what.worker == 0 && !begin_round(what.round)) return;
  auto stdio = hub_->open_worker(what.round, what.worker);
  if (!stdio) return setup_failed(what.worker, stdio.error());
  auto worker = std::make_unique<Worker>(loop_);
  Spawned spawned;
  worker->started = steady_now();
  if (const auto error = starter_->start(what.worker, *stdio, spawned);
      error.stage != Stage::none) {
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

void Agent::setup_failed(int worker, const Error& error) {
  facts_.end = JobEnd::setup_failed;
  spawn_failed(worker, {Stage::stdio, error.os_errno, error.what});
}

void Agent::spawn_failed(int worker, const SpawnError& error) {
  if (facts_.failed_stage == Stage::none) {
    facts_.failed_local_rank = worker;
    facts_.failed_stage = error.stage;
    facts_.failed_errno = error.os_errno;
    facts_.failed_what = error.what;
  }
  feed(AgentCore::SpawnFailed{worker});
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
  reap_orphans();
  if (info.si_code == CLD_EXITED && info.si_status == kExitNotFound) {
    if (const auto error = starter_->failure_of(worker)) return spawn_failed(worker, *error);
  }
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
  end.signal_we_sent = w.signal_sent;
  note_wait_status(end, info);
  if (end.signal == 0 && end.exit_code == 0) return end;
  note_out_of_memory(end, oom_before_);
  note_left_files(end, place_.round_dir);
  end.stderr_tail = hub_->stderr_tail(worker, kTailLines);
  return end;
}

void Agent::signal_worker(const AgentCore::SendSignal& what) {
  auto& worker = *workers_[static_cast<std::size_t>(what.worker)];
  if (ends_the_job(what.number)) worker.signal_sent = what.number;
  // Just forked, it may not lead its group yet.
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
  if (facts_.end != JobEnd::setup_failed) facts_.end = job_end(how.end);
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
  struct stat st {};
  const bool special = ::stat(plan_.error_file.c_str(), &st) == 0 && !S_ISREG(st.st_mode);
  const std::string fresh = special ? plan_.error_file : plan_.error_file + ".new";
  std::ofstream file(fresh);
  file << json << "\n";
  file.close();
  if (file && (special || ::rename(fresh.c_str(), plan_.error_file.c_str()) == 0)) return;
  log_warn("{}", errno_error("write --error-file " + plan_.error_file, errno).what);
  if (!special) ::unlink(fresh.c_str());
}

}  // namespace

int run_job(const Plan& plan) {
  if (auto ok = open_standard_descriptors(); !ok) {
    log_error("{}", ok.error().what);
    return kExitSystem;
  }
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
