// The agent: one thread, one loop. It has the job's decisions carried out by the node, and tells
// the user.

#include "launcher/agent.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/units.h"
#include "elastic/job_driver.h"
#include "launcher/job_care.h"
#include "launcher/job_control.h"
#include "launcher/job_dir.h"
#include "launcher/job_story.h"
#include "launcher/keeper.h"
#include "launcher/node.h"
#include "launcher/output_hub.h"
#include "launcher/port_reservation.h"
#include "launcher/process_tree.h"
#include "launcher/worker_starter.h"
#include "rendezvous/store_server.h"

namespace dlaunch {
namespace {

class Agent final : private JobDriver::Hands {
 public:
  Agent(const Plan& plan, const JobDir& job_dir, UniqueFd signals, const OriginalSignals& original);
  int run();

 private:
  bool set_up();
  Result<void> check_kernel() const;
  Result<void> open_store(const Secret& secret);
  Node::Listener node_listener();
  void watch_keeper();
  void on_keeper_signal(int signal);
  void on_ended(Slot slot, const WorkerEnd& end);
  void tell_loss(Slot slot, const WorkerEnd& end, int size_before) const;
  void arm_timer();
  const JobCore& job() const { return driver_.core(); }

  // -- JobDriver::Hands
  TimePoint now() override { return steady_now(); }
  void perform(const JobCore::StartWorkers& start) override;
  void perform(const JobCore::StopWorkers& stop) override;
  void perform(const JobCore::HandOn& pass) override;
  void perform(const JobCore::Fence& fence) override;
  void perform(const JobCore::Announce& announce) override;
  void perform(const JobCore::Finish& how) override;

  const Plan& plan_;
  const JobDir& job_dir_;
  const OriginalSignals original_;
  asio::io_context loop_{1};
  asio::posix::stream_descriptor keeper_;
  asio::steady_timer timer_;
  Pump pump_{[this] { arm_timer(); }};
  JobDriver driver_;
  WorkerPlace common_;  // what all workers are told alike
  PortReservation master_port_;
  std::unique_ptr<StoreServer> store_;
  std::unique_ptr<OutputHub> hub_;
  std::optional<WorkerStarter> starter_;
  std::unique_ptr<Node> node_;
  std::optional<JobCare> care_;
  std::unique_ptr<JobControl> control_;
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
      driver_(job_config(plan), pump_, *this),
      story_(plan) {}

int Agent::run() {
  if (!set_up()) return exit_code_;
  watch_keeper();
  driver_.feed(JobCore::Start{});
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
  common_.secret_file = *file;
  if (auto ok = open_store(*secret); !ok) {
    return failed(ok.error().code == Errc::usage ? kExitUsage : kExitRendezvous, ok.error());
  }

  hub_ = std::make_unique<OutputHub>(loop_, plan_);
  set_log_sink([this](LogLevel, std::string_view line) { hub_->own_line(line); });
  auto node = Node::open({loop_, job_dir_, *starter_, *hub_, pump_}, job().slots(), plan_.grace,
                         common_, node_listener());
  if (!node) return failed(kExitCannotCreate, node.error());
  node_ = std::move(*node);
  const auto order = [this](const JobCore::Event& event) { driver_.feed(event); };
  care_.emplace(loop_, plan_, *hub_, node_->processes(), order);
  auto control =
      JobControl::open(loop_, job_dir_.path(), {plan_, job(), node_->processes(), order});
  if (!control) return failed(kExitCannotCreate, control.error());
  control_ = std::move(*control);
  return true;
}

Node::Listener Agent::node_listener() {
  return {
      .tell = [this](const JobCore::Event& event) { driver_.feed(event); },
      .ended = [this](Slot slot, const WorkerEnd& end) { on_ended(slot, end); },
      .start_failed = [this](Slot slot,
                             const SpawnError& error) { story_.start_failed(slot, error); },
      .child_changed = [this] { care_->look(); },
  };
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
  common_.store_url = "tcp://" + to_string(store_->endpoint());

  auto port = reserve_port(plan_.master_addr, static_cast<std::uint16_t>(plan_.master_port));
  if (!port) return port.error();
  master_port_ = std::move(*port);
  common_.master_port = master_port_.port;
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
  if (job().state() != JobState::ended) return driver_.feed(JobCore::Signal{signal});
  // Only the reader of our output holds us up: the user does not want to wait for it.
  if (ends_the_job(signal)) loop_.stop();
}

void Agent::arm_timer() {
  if (!node_) return;
  const auto deadline =
      std::min(job().deadline().value_or(kNever), node_->driver().deadline().value_or(kNever));
  if (deadline == kNever) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(deadline);
  timer_.async_wait([this](asio::error_code ec) {
    if (ec) return;
    node_->driver().on_clock();
    driver_.feed(JobCore::Clock{});
  });
}

// -- What the job wants

void Agent::perform(const JobCore::StartWorkers& start) {
  if (start.all) {
    if (start.round > 1) {
      story_.tell_restart(job());
      node_->kill_leftovers();
    }
    story_.begin_round(start.round, job().size());
    care_->begin_round(job().size(), std::nullopt);
  }
  node_->set_size(job().size());
  node_->driver().start(start.round, start.places);
  if (start.all) node_->drop_old_round_dirs();
}

void Agent::perform(const JobCore::StopWorkers& stop) {
  node_->driver().stop(stop.slots, stop.signal);
}

void Agent::perform(const JobCore::HandOn& pass) { node_->driver().hand_on(pass.signal); }

void Agent::perform(const JobCore::Fence& fence) {
  if (!fenced_) fenced_ = steady_now();
  node_->fence(fence);
}

void Agent::perform(const JobCore::Announce& announce) {
  std::vector<JobCore::Place> places;
  for (const Slot slot : announce.slots) places.push_back({slot, static_cast<int>(places.size())});
  const int size = static_cast<int>(places.size());
  node_->set_size(size);
  if (!node_->announce(announce.round, size, places)) return;
  story_.begin_round(announce.round, size);
  care_->begin_round(size, fenced_);
  if (fenced_) {
    log_warn("round {}: {} after {}", announce.round,
             size == 1 ? "1 worker" : std::to_string(size) + " workers",
             format_duration(steady_now() - *fenced_));
    fenced_.reset();
  }
  node_->drop_old_round_dirs();
}

// -- What happened on the node

void Agent::on_ended(Slot slot, const WorkerEnd& end) {
  const bool well = end.signal == 0 && end.exit_code == 0;
  story_.ended(end);
  care_->gone(end.rank);
  const int size_before = job().size();
  driver_.feed(
      JobCore::Ended{.slot = slot,
                     .well = well,
                     .consequence = end.peer_lost >= 0,
                     .kind = end.signal != 0 ? FailureKind::signal : FailureKind::exit_code,
                     .code = end.signal != 0 ? end.signal : end.exit_code,
                     .signature = signature_of(end),
                     .ran = end.ended - end.started});
  if (job().state() == JobState::ending || job().state() == JobState::ended) return;
  node_->kill_leftovers();
  if (!well && job().some_stay()) tell_loss(slot, end, size_before);
}

// Of one worker, in a job that goes on with the others.
void Agent::tell_loss(Slot slot, const WorkerEnd& end, int size_before) const {
  if (end.signal_we_sent != 0 && end.hung.empty()) return;
  std::string next = "a spare takes its place";
  if (end.rank < 0) {
    next = "starting another spare";
  } else if (job().size() < size_before) {
    next = fmt::format("going on with {} of {} workers", job().size(), size_before);
  } else if (job().rank_of(slot) == end.rank) {
    next = "starting it again";
  }
  story_.tell_loss(end, next, job());
}

void Agent::perform(const JobCore::Finish& how) {
  care_->stop();
  node_->kill_leftovers();
  std::vector<int> left;
  const Processes& processes = node_->processes();
  for (const Slot slot : processes.running_slots()) left.push_back(processes.place(slot).rank);
  const auto ending = story_.finish(how, job(), std::move(left));
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
