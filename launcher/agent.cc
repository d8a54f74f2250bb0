// The agent shell: one thread, one loop. It performs what JobCore and AgentCore decide and reports
// back what happened to the processes.

#include "launcher/agent.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <variant>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/units.h"
#include "elastic/agent_core.h"
#include "elastic/chaos.h"
#include "elastic/job_core.h"
#include "launcher/job_dir.h"
#include "launcher/keeper.h"
#include "launcher/output_hub.h"
#include "launcher/port_reservation.h"
#include "launcher/process_tree.h"
#include "launcher/processes.h"
#include "launcher/progress_watch.h"
#include "launcher/report.h"
#include "launcher/topology.h"
#include "launcher/worker_channel.h"
#include "launcher/worker_starter.h"
#include "rendezvous/store_server.h"

namespace dlaunch {
namespace {

constexpr int kRoundDirsKept = 3;

class Agent {
 public:
  Agent(const Plan& plan, const JobDir& job_dir, UniqueFd signals, const OriginalSignals& original);
  int run();

 private:
  using Event = std::variant<JobCore::Event, AgentCore::Event>;

  bool set_up();
  Result<void> check_kernel() const;
  Result<void> open_store(const Secret& secret);
  void watch_keeper();
  void on_keeper_signal(int signal);
  void on_ready(const Ready& ready, pid_t pid);
  void feed(Event event);
  void command(const AgentCore::Event& event);
  template <class Actions>
  void perform_all(const Actions& actions);
  void arm_timer();

  void perform(const JobCore::StartWorkers& start);
  void perform(const JobCore::StopWorkers& stop);
  void perform(const JobCore::HandOn& pass);
  void perform(const JobCore::Fence& fence);
  void perform(const JobCore::Announce& announce);
  void perform(const JobCore::Finish& how);
  void perform(const AgentCore::Spawn& spawn);
  void perform(const AgentCore::SendSignal& send);
  void perform(const AgentCore::NotStarted& what);
  void perform(const AgentCore::GiveUp& what);

  Result<std::string> round_dir(int round);
  void drop_old_round_dirs();
  void spawn_failed(Slot slot, const SpawnError& error);
  void on_ended(Slot slot, WorkerEnd end);
  void arm_chaos();
  void replace_slow(int rank, const std::string& why);
  void begin_watch();
  void replace_hung(const RankSet& ranks, const std::string& why);
  void tell_of_failure(std::vector<WorkerEnd> ends, const std::string& what_next);
  void write_error_file(const std::string& json);

  const Plan& plan_;
  const JobDir& job_dir_;
  const OriginalSignals original_;
  asio::io_context loop_{1};
  asio::posix::stream_descriptor keeper_;
  asio::steady_timer timer_, chaos_timer_;
  JobCore job_;
  const int slots_;
  AgentCore agent_;
  std::unique_ptr<StoreServer> store_;
  std::unique_ptr<OutputHub> hub_;
  std::unique_ptr<WorkerChannel> channel_;
  PortReservation master_port_;
  WorkerPlace place_;  // what is common to all workers
  std::optional<WorkerStarter> starter_;
  std::optional<Processes> processes_;
  std::optional<ProgressWatch> watch_;
  std::optional<Chaos> chaos_;
  std::map<Slot, JobCore::Place> to_start_;
  int last_worker_ = 0;
  int last_round_dir_ = 0;
  std::deque<Event> events_;
  bool pumping_ = false;
  unsigned char signal_byte_ = 0;
  TimePoint fenced_{};
  JobFacts facts_;
  int exit_code_ = 0;
};

JobConfig job_config(const Plan& plan) {
  return {.size = plan.nproc,
          .min_size = plan.min_nproc,
          .max_size = plan.max_nproc,
          .spares = plan.spares,
          .scope = plan.restart_scope,
          .restarts = {.limit = plan.max_restarts,
                       .futile_restarts = plan.futile_restarts,
                       .final_exit_codes = plan.final_exit_codes,
                       .seed = static_cast<std::uint64_t>(steady_now().time_since_epoch().count())},
          .timeout = plan.timeout,
          .join_timeout = plan.join_timeout};
}

Agent::Agent(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
             const OriginalSignals& original)
    : plan_(plan),
      job_dir_(job_dir),
      original_(original),
      keeper_(loop_, signals.release()),
      timer_(loop_),
      chaos_timer_(loop_),
      job_(job_config(plan)),
      slots_(JobCore::slots(job_config(plan))),
      agent_(slots_, plan.grace) {
  facts_.job_id = plan.job_id;
  facts_.host = plan.host;
  facts_.program = plan.argv.at(0);
  facts_.nproc = plan.nproc;
  facts_.max_restarts = format_restart_limit(plan.max_restarts);
  facts_.grace = plan.grace;
  facts_.started = steady_now();
}

int Agent::run() {
  if (!set_up()) return exit_code_;
  watch_keeper();
  feed(JobCore::Start{});
  if (plan_.chaos) {
    chaos_.emplace(steady_now(), *plan_.chaos);
    arm_chaos();
  }
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

  auto secret = plan_.secret_file.empty() ? Secret::random() : Secret::load(plan_.secret_file);
  if (!secret) return failed(kExitNoInput, secret.error());
  auto file = job_dir_.write_secret(*secret);
  if (!file) return failed(kExitCannotCreate, file.error());
  place_.secret_file = *file;
  place_.agent_socket = job_dir_.path() + "/" + kAgentSocket;
  auto channel = WorkerChannel::open(
      loop_, place_.agent_socket,
      [this](int worker) { return processes_->slot_of_worker(worker).has_value(); },
      [this](const Ready& ready, pid_t pid) { on_ready(ready, pid); });
  if (!channel) return failed(kExitCannotCreate, channel.error());
  channel_ = std::move(*channel);
  if (auto ok = open_store(*secret); !ok) {
    return failed(ok.error().code == Errc::usage ? kExitUsage : kExitRendezvous, ok.error());
  }

  hub_ = std::make_unique<OutputHub>(loop_, plan_);
  set_log_sink([this](LogLevel, std::string_view line) { hub_->own_line(line); });
  processes_.emplace(
      loop_, *hub_, *starter_, slots_,
      Processes::Listener{
          .ended = [this](Slot slot, WorkerEnd end) { on_ended(slot, std::move(end)); },
          .child_changed = [this] { watch_->look(); },
          .never_ran = [this](Slot slot, const SpawnError& e) { spawn_failed(slot, e); }});
  ProgressWatch::Options options{.hang_timeout = plan_.hang_timeout, .stragglers = {}};
  options.stragglers.mode = plan_.straggler;
  options.stragglers.detection.ratio = plan_.straggler_ratio;
  options.stragglers.detection.window_time = plan_.straggler_window;
  watch_.emplace(
      loop_, *processes_, slots_, options,
      ProgressWatch::Listener{
          .warn = [](int, const std::string& what) { log_warn("{}", what); },
          .dump = [](const RankSet&) {},
          .replace = [this](const RankSet& ranks,
                            const std::string& why) { replace_hung(ranks, why); },
          .replace_slow = [this](int rank, const std::string& why) { replace_slow(rank, why); }});
  return true;
}

// The store, and the port that is the workers' own.
Result<void> Agent::open_store(const Secret& secret) {
  auto listen = parse_endpoint(plan_.store_listen);
  if (!listen) {
    Error error = listen.error();
    error.code = Errc::usage;
    return error;
  }
  auto store = StoreServer::open(loop_, {*listen, plan_.job_id, secret});
  if (!store) return store.error();
  store_ = std::move(*store);
  place_.store_url = "tcp://" + to_string(store_->endpoint());

  auto port = reserve_port(plan_.master_addr, static_cast<std::uint16_t>(plan_.master_port));
  if (!port) return port.error();
  master_port_ = std::move(*port);
  place_.master_port = master_port_.port;
  place_.usable_cores = usable_cpus().usable();
  return {};
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
  if (job_.state() != JobState::ended) return feed(JobCore::Signal{signal});
  // Only the reader of our output holds us up: the user does not want to wait for it.
  if (ends_the_job(signal)) loop_.stop();
}

// -- Events and actions

// Performing an action may cause an event; events queue up so that no core is re-entered.
void Agent::feed(Event event) {
  events_.push_back(std::move(event));
  if (std::exchange(pumping_, true)) return;
  while (!events_.empty()) {
    const Event next = std::move(events_.front());
    events_.pop_front();
    if (const auto* what = std::get_if<JobCore::Event>(&next)) {
      perform_all(job_.step(steady_now(), *what));
    } else {
      command(std::get<AgentCore::Event>(next));
    }
  }
  pumping_ = false;
  arm_timer();
}

// What the job wants of this node is done before anything else happens.
void Agent::command(const AgentCore::Event& event) {
  perform_all(agent_.step(steady_now(), event));
}

template <class Actions>
void Agent::perform_all(const Actions& actions) {
  for (const auto& action : actions) {
    std::visit([this](const auto& what) { perform(what); }, action);
  }
}

void Agent::arm_timer() {
  const auto deadline =
      std::min(job_.deadline().value_or(kNever), agent_.deadline().value_or(kNever));
  if (deadline == kNever) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(deadline);
  timer_.async_wait([this](asio::error_code ec) {
    if (ec) return;
    feed(AgentCore::Clock{});
    feed(JobCore::Clock{});
  });
}

void Agent::on_ready(const Ready& ready, pid_t pid) {
  const auto slot = processes_->slot_of_worker(ready.worker);
  if (!slot) return;
  processes_->set_program_pid(*slot, pid);
  feed(JobCore::Ready{*slot, ready.left, ready.version});
}

// -- What the job wants

void Agent::perform(const JobCore::StartWorkers& start) {
  if (start.all) {
    if (start.round > 1) {
      tell_of_failure(facts_.workers, "restarting all workers");
      processes_->kill_leftovers();
    }
    facts_.workers.clear();
    begin_watch();
  }
  facts_.end = JobEnd::succeeded;
  facts_.round = start.round;
  AgentCore::Start slots;
  for (const auto& place : start.places) {
    to_start_[place.slot] = place;
    slots.slots.push_back(place.slot);
  }
  place_.round = start.round;
  command(slots);
  if (start.all) drop_old_round_dirs();
}

void Agent::perform(const JobCore::StopWorkers& stop) {
  command(AgentCore::Stop{stop.slots, stop.signal});
}

void Agent::perform(const JobCore::HandOn& pass) { command(AgentCore::HandOn{pass.signal}); }

void Agent::perform(const JobCore::Fence& fence) {
  fenced_ = steady_now();
  for (Slot slot = 0; slot < slots_; ++slot) {
    if (!processes_->running(slot)) continue;
    channel_->send(processes_->place(slot).worker, FenceNotice{fence.round, fence.lost});
  }
}

void Agent::perform(const JobCore::Announce& announce) {
  auto dir = round_dir(announce.round);
  if (!dir) return spawn_failed(announce.slots.at(0), {Stage::stdio, 0, dir.error().what});
  facts_.round = announce.round;
  facts_.workers.clear();
  begin_watch();
  facts_.nproc = static_cast<int>(announce.slots.size());
  RoundNotice notice{.round = announce.round,
                     .size = facts_.nproc,
                     .local_cores = place_.usable_cores,
                     .store_url = place_.store_url,
                     .round_dir = *dir};
  for (const Slot slot : announce.slots) {
    processes_->move(slot, notice.rank, *dir);
    channel_->send(processes_->place(slot).worker, notice);
    ++notice.rank;
  }
  if (announce.round > 1 && fenced_ != TimePoint{}) {
    log_warn("round {}: {} after {}", announce.round,
             facts_.nproc == 1 ? "1 worker" : std::to_string(facts_.nproc) + " workers",
             format_duration(steady_now() - fenced_));
  }
  drop_old_round_dirs();
}

Result<std::string> Agent::round_dir(int round) {
  if (round != last_round_dir_) {
    auto made = job_dir_.make_round_dir(round);
    if (!made) return made;
    last_round_dir_ = round;
    return made;
  }
  return job_dir_.path() + "/" + std::to_string(round);
}

// Nobody writes there any more. Slow on some file systems: not while somebody waits for a round.
void Agent::drop_old_round_dirs() { job_dir_.remove_round_dirs(last_round_dir_ - kRoundDirsKept); }

// -- What this node does

void Agent::perform(const AgentCore::Spawn& spawn) {
  const auto what = to_start_.at(spawn.slot);
  auto dir = round_dir(place_.round);
  if (!dir) {
    facts_.end = JobEnd::setup_failed;
    return spawn_failed(spawn.slot, {Stage::stdio, dir.error().os_errno, dir.error().what});
  }
  WorkerPlace place = place_;
  place.rank = what.rank;
  place.size = job_.size();
  place.worker = ++last_worker_;
  place.round_dir = *dir;
  place.error_file = job_dir_.path() + "/error." + std::to_string(place.worker) + ".json";
  if (const auto error = processes_->start(spawn.slot, place); error.stage != Stage::none) {
    if (error.stage == Stage::stdio) facts_.end = JobEnd::setup_failed;
    return spawn_failed(spawn.slot, error);
  }
  feed(AgentCore::Spawned{});
  feed(JobCore::Spawned{spawn.slot});
}

void Agent::perform(const AgentCore::SendSignal& send) {
  processes_->signal(send.slot, send.number);
}

void Agent::perform(const AgentCore::NotStarted& what) { feed(JobCore::Ended{what.slot, true}); }

void Agent::perform(const AgentCore::GiveUp& what) { feed(JobCore::Unkillable{what.slot}); }

void Agent::spawn_failed(Slot slot, const SpawnError& error) {
  if (facts_.failed_stage == Stage::none) {
    facts_.failed_local_rank = slot;
    facts_.failed_stage = error.stage;
    facts_.failed_errno = error.os_errno;
    facts_.failed_what = error.what;
  }
  feed(JobCore::SpawnFailed{slot});  // first, or the next would be started in vain
  feed(AgentCore::SpawnFailed{slot});
}

void Agent::on_ended(Slot slot, WorkerEnd end) {
  const bool well = end.signal == 0 && end.exit_code == 0;
  // Whose loss it blames may have ended before it, and only not been noticed yet.
  if (!well && end.peer_lost >= 0) {
    for (Slot other = 0; other < slots_; ++other) {
      if (processes_->running(other) && processes_->place(other).rank == end.peer_lost) {
        processes_->reap_if_ended(other);
      }
    }
  }
  facts_.workers.push_back(end);
  watch_->gone(end.rank);
  feed(AgentCore::Exited{slot});
  feed(JobCore::Ended{.slot = slot,
                      .well = well,
                      .consequence = end.peer_lost >= 0,
                      .kind = end.signal != 0 ? FailureKind::signal : FailureKind::exit_code,
                      .code = end.signal != 0 ? end.signal : end.exit_code,
                      .signature = signature_of(end),
                      .ran = end.ended - end.started});
  if (job_.state() == JobState::ending || job_.state() == JobState::ended) return;
  processes_->kill_leftovers();
  if (well || (end.signal_we_sent != 0 && end.hung.empty()) || !job_.some_stay()) return;
  if (end.rank < 0) return tell_of_failure({std::move(end)}, "starting another spare");
  tell_of_failure({std::move(end)},
                  job_.rank_of(slot) == end.rank ? "starting it again" : "a spare takes its place");
}

void Agent::arm_chaos() {
  chaos_timer_.expires_at(chaos_->deadline());
  chaos_timer_.async_wait([this](asio::error_code ec) {
    if (ec || job_.state() == JobState::ended) return;
    std::vector<int> alive;
    for (Slot slot = 0; slot < slots_; ++slot) {
      if (processes_->running(slot) && processes_->place(slot).rank >= 0) alive.push_back(slot);
    }
    for (const auto& deed : chaos_->step(steady_now(), alive)) {
      const pid_t pid = processes_->program_pid(deed.victim);
      log_info("chaos: {} to rank {} (pid {})", describe_signal(deed.signal),
               processes_->place(deed.victim).rank, pid);
      ::kill(pid, deed.signal);
    }
    arm_chaos();
  });
}

void Agent::replace_slow(int rank, const std::string& why) {
  for (Slot slot = 0; slot < slots_; ++slot) {
    if (!processes_->running(slot) || processes_->place(slot).rank != rank) continue;
    log_warn("{}", why);
    return feed(JobCore::Replace{slot, FailureKind::evicted});
  }
}

// Of a round that begins.
void Agent::begin_watch() {
  std::optional<Duration> recovered;
  if (fenced_ != TimePoint{}) recovered = steady_now() - fenced_;
  watch_->new_round(
      {.ranks = job_.size(), .nodes = 1, .min_ranks = plan_.min_nproc, .spares = plan_.spares},
      recovered);
}

void Agent::replace_hung(const RankSet& ranks, const std::string& why) {
  for (Slot slot = 0; slot < slots_; ++slot) {
    if (!processes_->running(slot) || !ranks.contains(processes_->place(slot).rank)) continue;
    processes_->call_hung(slot, why);
    feed(JobCore::Replace{slot, FailureKind::hung});
  }
}

// One line, for a job that goes on.
void Agent::tell_of_failure(std::vector<WorkerEnd> ends, const std::string& what_next) {
  JobFacts facts = facts_;
  facts.end = JobEnd::worker_failed;
  facts.workers = std::move(ends);
  const auto lines = render_text(facts, judge(facts), false);
  log_warn("{}; {}: round {}, {} of {} restarts used",
           lines.empty() ? "a worker failed" : lines.front(), what_next, job_.round(),
           job_.restarts_used(), facts_.max_restarts);
}

JobEnd job_end(JobEnding end) {
  switch (end) {
    case JobEnding::succeeded:
      return JobEnd::succeeded;
    case JobEnding::worker_failed:
      return JobEnd::worker_failed;
    case JobEnding::spawn_failed:
      return JobEnd::spawn_failed;
    case JobEnding::interrupted:
      return JobEnd::interrupted;
    case JobEnding::timed_out:
      return JobEnd::timed_out;
  }
  return JobEnd::succeeded;
}

void Agent::perform(const JobCore::Finish& how) {
  watch_->stop();
  chaos_timer_.cancel();
  processes_->kill_leftovers();
  if (facts_.end != JobEnd::setup_failed) facts_.end = job_end(how.end);
  facts_.signal_received = how.signal;
  facts_.restarts_used = job_.restarts_used();
  if (plan_.max_restarts.restarts > 0) facts_.why_no_restart = how.why;
  facts_.ended = steady_now();
  for (Slot slot = 0; slot < slots_; ++slot) {
    if (processes_->running(slot)) facts_.still_running.push_back(processes_->place(slot).rank);
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
