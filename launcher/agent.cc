// The agent shell: one thread, one loop. It performs what JobCore and AgentCore decide and reports
// back what happened to the processes.

#include "launcher/agent.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
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
#include "elastic/job_core.h"
#include "launcher/job_care.h"
#include "launcher/job_control.h"
#include "launcher/job_dir.h"
#include "launcher/job_story.h"
#include "launcher/keeper.h"
#include "launcher/output_hub.h"
#include "launcher/port_reservation.h"
#include "launcher/process_tree.h"
#include "launcher/processes.h"
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
  void on_progress(const ProgressNotice& progress);
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
  void tell_loss(Slot slot, const WorkerEnd& end, int size_before) const;

  const Plan& plan_;
  const JobDir& job_dir_;
  const OriginalSignals original_;
  asio::io_context loop_{1};
  asio::posix::stream_descriptor keeper_;
  asio::steady_timer timer_;
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
  std::optional<JobCare> care_;
  std::unique_ptr<JobControl> control_;
  std::map<Slot, JobCore::Place> to_start_;
  int last_worker_ = 0;
  int last_round_dir_ = 0;
  std::deque<Event> events_;
  bool pumping_ = false;
  unsigned char signal_byte_ = 0;
  std::optional<TimePoint> fenced_;
  JobStory story_;
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
      job_(job_config(plan)),
      slots_(JobCore::slots(job_config(plan))),
      agent_(slots_, plan.grace),
      story_(plan) {}

int Agent::run() {
  if (!set_up()) return exit_code_;
  watch_keeper();
  feed(JobCore::Start{});
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
      [this](const Ready& ready, pid_t pid) { on_ready(ready, pid); },
      [this](const ProgressNotice& progress) { on_progress(progress); });
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
          .child_changed = [this] { care_->look(); },
          .never_ran = [this](Slot slot, const SpawnError& e) { spawn_failed(slot, e); }});
  const auto order = [this](const JobCore::Event& event) { feed(event); };
  care_.emplace(loop_, plan_, *hub_, *processes_, slots_, order);
  auto control = JobControl::open(loop_, job_dir_.path(), {plan_, job_, *processes_, order});
  if (!control) return failed(kExitCannotCreate, control.error());
  control_ = std::move(*control);
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

void Agent::on_progress(const ProgressNotice& progress) {
  const auto slot = processes_->slot_of_worker(progress.worker);
  if (slot) feed(JobCore::Progress{*slot, progress.version});
}

// -- What the job wants

void Agent::perform(const JobCore::StartWorkers& start) {
  if (start.all) {
    if (start.round > 1) {
      story_.tell_restart(job_);
      processes_->kill_leftovers();
    }
    story_.begin_round(start.round, job_.size());
    care_->begin_round(job_.size(), std::nullopt);
  }
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
  if (!fenced_) fenced_ = steady_now();
  for (Slot slot = 0; slot < slots_; ++slot) {
    if (!processes_->running(slot)) continue;
    channel_->send(processes_->place(slot).worker, FenceNotice{fence.round, fence.lost});
  }
}

void Agent::perform(const JobCore::Announce& announce) {
  auto dir = round_dir(announce.round);
  if (!dir) return spawn_failed(announce.slots.at(0), {Stage::stdio, 0, dir.error().what});
  const int size = static_cast<int>(announce.slots.size());
  story_.begin_round(announce.round, size);
  care_->begin_round(size, fenced_);
  RoundNotice notice{.round = announce.round,
                     .size = size,
                     .local_cores = place_.usable_cores,
                     .store_url = place_.store_url,
                     .round_dir = *dir};
  for (const Slot slot : announce.slots) {
    processes_->move(slot, notice.rank, *dir);
    channel_->send(processes_->place(slot).worker, notice);
    ++notice.rank;
  }
  if (fenced_) {
    log_warn("round {}: {} after {}", announce.round,
             size == 1 ? "1 worker" : std::to_string(size) + " workers",
             format_duration(steady_now() - *fenced_));
    fenced_.reset();
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
    return spawn_failed(spawn.slot, {Stage::stdio, dir.error().os_errno, dir.error().what});
  }
  WorkerPlace place = place_;
  place.rank = what.rank;
  place.size = job_.size();
  place.worker = ++last_worker_;
  place.round_dir = *dir;
  place.error_file = job_dir_.path() + "/error." + std::to_string(place.worker) + ".json";
  if (const auto error = processes_->start(spawn.slot, place); error.stage != Stage::none) {
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
  story_.start_failed(slot, error);
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
  story_.ended(end);
  care_->gone(end.rank);
  const int size_before = job_.size();
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
  if (!well && job_.some_stay()) tell_loss(slot, end, size_before);
}

// Of one worker, in a job that goes on with the others.
void Agent::tell_loss(Slot slot, const WorkerEnd& end, int size_before) const {
  if (end.signal_we_sent != 0 && end.hung.empty()) return;
  std::string next = "a spare takes its place";
  if (end.rank < 0) {
    next = "starting another spare";
  } else if (job_.size() < size_before) {
    next = fmt::format("going on with {} of {} workers", job_.size(), size_before);
  } else if (job_.rank_of(slot) == end.rank) {
    next = "starting it again";
  }
  story_.tell_loss(end, next, job_);
}

void Agent::perform(const JobCore::Finish& how) {
  care_->stop();
  processes_->kill_leftovers();
  std::vector<int> left;
  for (Slot slot = 0; slot < slots_; ++slot) {
    if (processes_->running(slot)) left.push_back(processes_->place(slot).rank);
  }
  const auto ending = story_.finish(how, job_, std::move(left));
  exit_code_ = ending.exit_code;
  for (const auto& line : ending.report) hub_->own_line("dlaunch: " + line);
  hub_->close_stdin();
  hub_->flush(Duration::max(), [this] { loop_.stop(); });
}

}  // namespace

int run_job(const Plan& plan) {
  if (auto ok = open_standard_descriptors(); !ok) {
    log_error("{}", ok.error().what);
    return kExitSystem;
  }
  auto job_dir = JobDir::make(folder_for_jobs());
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
