// The agent that leads: one thread, one loop. The job's core decides, the nodes carry it out, and
// this shell connects them and informs the user.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>

#include <asio/post.hpp>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/signal_name.h"
#include "base/text.h"
#include "base/units.h"
#include "elastic/job_driver.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/agent_base.h"
#include "launcher/lead/job_control.h"
#include "launcher/lead/job_monitor.h"
#include "launcher/lead/job_story.h"
#include "launcher/lead/job_telemetry.h"
#include "launcher/lead/leader_signals.h"
#include "launcher/lead/membership/drained_hosts.h"
#include "launcher/lead/membership/membership_shell.h"
#include "launcher/lead/membership/node_membership.h"
#include "launcher/lead/progress_display.h"
#include "launcher/lead/start/started_hosts.h"

namespace dlaunch {
namespace {

constexpr Duration kTellWaiting = std::chrono::seconds(5);
constexpr Duration kPauseWorthTelling = std::chrono::milliseconds(10);

class JobLeader final : private AgentBase,
                        private NodeMembership::Job,
                        private JobMonitor::Effects,
                        private JobDriver::Effects {
 public:
  JobLeader(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
            const OriginalSignals& original, std::optional<JobJournal> was = {});
  // Call it before run() if the leader was elected, or may be restarted.
  void set_lease(LeaderLease& lease) { lease_ = &lease; }
  // A signal has ended the job, or was about to.
  bool interrupted() const { return interrupted_; }
  // None: another dlaunch listens on our endpoint and we may follow it; or another one leads now.
  std::optional<int> run();

 private:
  bool set_up();
  void start_hosts();
  void show_progress();
  void let_go();
  Result<void> open_store();
  std::vector<std::string> hosts_in_words() const;
  DrainedHosts::Job job_for_drained();
  void write_down_drained();
  void take_over(const JobCore::Resume& resumed);
  void give_up(int exit_code, const std::string& why);
  LeaderSignals::Job phase() const;
  void end(int exit_code, const std::string& why, const std::vector<std::string>& report);
  void on_signal(int signal) override;
  void on_timer() override;
  void on_idle() override;
  void on_waiting();
  void tell_loss(Slot slot, const WorkerEnd& end, int size_before) const;
  std::string pause_before(Slot slot) const;
  const JobCore& job() const { return driver_->core(); }

  // -- JobMonitor::Effects
  void wake_monitor_at(TimePoint due) override { monitor_timer_.arm(due); }
  void warn(const std::string& words) override { log_warn("{}", words); }
  void show(const std::string& line) override { hub_->own_line(line); }
  void ended(Slot slot, const WorkerEnd& end) override;
  void note_stacks(int rank, const std::vector<std::string>& lines) override {
    story_.note_stacks(rank, lines);
  }
  void note_late_in_nccl(const NcclVerdict& late) override {
    story_.note_late_in_nccl(late.ranks, late.sentence);
  }
  void happened(const JobEvent& event) override { telemetry_.events().happened(event); }
  void measured(const StepTimes& step) override { telemetry_.measured(step); }

  // -- NodeMembership::Job
  void begin() override;
  void give_up(const std::string& why) override { give_up(kExitRendezvous, why); }
  void feed(const JobCore::Event& event) override;
  void on_lost(int node, const std::string& host) override;
  void on_back(int node, const std::string& host) override;
  void on_left(int node) override;
  bool leaves(int node) override { return driver_ && drained_.leave(node); }
  void on_ended(Slot slot, WorkerEnd end) override;
  void on_start_failed(Slot slot, const SpawnError& error) override {
    story_.start_failed(job().rank_of(slot), error);
    telemetry_.events().start_failed(job().rank_of(slot), error);
  }
  bool expects(int login) override { return !started_ || started_->runs(login); }
  void on_linked(int node, bool here) override {
    if (started_) started_->linked(node, here);
  }
  void on_login_ended(int node, const NodeLoginEnded& ended) override {
    if (started_) started_->login_ended(node, ended);
  }
  void on_input_wanted(int node, bool wants) override { hub_->stdin_pump().host_asks(node, wants); }
  void on_asked(NodeMembership::Link link, const std::string& request) override {
    control_->answer(request, [this, link](const auto& text) { membership_.answer(link, text); });
  }
  void on_monitor(int node, const NodeMessage& what) override {
    telemetry_.take(node, membership_.name_of(node), membership_.clock_error(node), what);
    monitor_->take(node, what);
    if (progress_ && std::holds_alternative<NodeRunProgress>(what)) progress_->progressed();
  }

  // -- JobDriver::Effects
  TimePoint now() override { return steady_now(); }
  bool writes_down() const override { return lease_ != nullptr; }
  void write_down(const JobRecord& record, std::function<void()> then) override;
  void perform(const JobCore::StartWorkers& start) override;
  void perform(const JobCore::StopWorkers& stop) override;
  void perform(const JobCore::HandOn& pass) override;
  void perform(const JobCore::Fence& fence) override;
  void perform(const JobCore::Announce& announce) override;
  void perform(const JobCore::AwaitEnd& awaited) override {
    log_warn("{}", in_words(awaited, membership_.host_of(awaited.of.slot)));
  }
  void perform(const JobCore::Finish& how) override;

  MembershipShell shell_;
  NodeMembership membership_;
  std::optional<JobDriver> driver_;  // set once all hosts have joined
  std::unique_ptr<Node> node_;
  DeadlineTimer monitor_timer_;
  std::optional<JobMonitor> monitor_;
  std::unique_ptr<JobControl> control_;
  LeaderLease* lease_ = nullptr;         // where we write the journal
  std::optional<StartedHosts> started_;  // set if we start the other hosts
  std::optional<TimePoint> fenced_;
  TimePoint end_signal_at_;
  TimePoint write_time_left_at_ = kNever;
  DrainedHosts drained_;
  JobStory story_;
  LeaderSignals signals_;
  JobTelemetry telemetry_;
  std::optional<ProgressDisplay> progress_;  // none: the user wants none
  const TimePoint began_ = steady_now();
  bool led_elsewhere_ = false;
  bool ending_ = false;
  bool interrupted_ = false;
  bool all_start_again_ = false;  // since the last end; the user was informed
};

JobConfig job_config(const Plan& plan) {
  return {
      .size = plan.nproc,
      .min_size = plan.min_nproc,
      .max_size = plan.max_nproc,
      .spares = plan.spares,
      .scope = plan.restart_scope,
      .restarts = {.limit = plan.max_restarts,
                   .same_failures = plan.same_failures,
                   .final_exit_codes = plan.final_exit_codes,
                   .seed = static_cast<std::uint64_t>(steady_now().time_since_epoch().count())},
      .join_timeout = plan.debugging.active() ? Duration::max() : plan.join_timeout,
      // They notice it a lease later than we do, and the clocks differ.
      .node_ends = 2 * plan.nodes.host_timeout +
                   (plan.nodes.outlives_leader() ? plan.join_timeout * 5 / 4 : Duration::zero()),
      .servers = serving_ranks(plan.roles)};
}

// Unique; "": there are no random bytes, and the job cannot go on under another leader.
std::string run_name() {
  const auto name = random_hex(8);
  return name ? *name : "";
}

JobLeader::JobLeader(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
                     const OriginalSignals& original, std::optional<JobJournal> was)
    : AgentBase(plan, job_dir, std::move(signals), original),
      shell_(loop_, plan, membership_),
      membership_(plan, std::move(was), run_name(), shell_, *this),
      monitor_timer_(loop_, [this] { monitor_->on_clock(); }),
      end_signal_at_(plan.end_signal_after ? deadline_after(steady_now(), *plan.end_signal_after)
                                           : kNever),
      drained_(membership_, job_for_drained()),
      story_(plan),
      signals_(plan_.nodes),
      telemetry_(plan) {}

DrainedHosts::Job JobLeader::job_for_drained() {
  return {.least = plan_.nodes.min,
          .feed = [this](const JobCore::Event& event) { feed(event); },
          .nobody_on = [this](int node) { return !driver_ || job().nobody_on(node); },
          .starts_hosts = [this] { return started_.has_value(); },
          .listed_as = [this](int node) { return started_->name(node); },
          .take_out = [this](int node,
                             bool out) { out ? started_->drain(node) : started_->undrain(node); },
          .write_down = [this] { write_down_drained(); }};
}

std::optional<int> JobLeader::run() {
  if (!set_up()) return led_elsewhere_ ? std::nullopt : std::optional(exit_code_);
  drained_.take_over();
  shell_.gather();
  show_progress();
  start_hosts();
  if (!driver_) telemetry_.events().queued();
  if (!driver_) arm_timer(std::min(job_ends_at_, steady_now() + kTellWaiting));
  run_loop();
  return led_elsewhere_ ? std::nullopt : std::optional(exit_code_);
}

// Prepares what the first worker needs.
bool JobLeader::set_up() {
  if (!AgentBase::set_up()) return false;
  if (auto ok = open_store(); !ok) {
    led_elsewhere_ =
        plan_.nodes.lead == NodesPlan::Lead::if_free && ok.error().os_errno == EADDRINUSE;
    if (led_elsewhere_) return false;
    Error error = ok.error();
    if (error.os_errno == EADDRINUSE) {
      error.what += "; another job or program has that port ('ss -ltnp' tells which)";
    }
    if (error.os_errno == EADDRNOTAVAIL && !plan_.nodes.several()) {
      error.what +=
          "; this host has no loopback address that is up: 'ip link set lo up' brings it up";
    }
    return failed(error.code == Errc::usage ? kExitUsage : kExitRendezvous, error);
  }
  auto control =
      JobControl::open(loop_, job_dir_.path(), plan_, telemetry_,
                       {.who_is_here = [this] { return membership_.who_is_here(); },
                        .here = [this] { return membership_.here(); },
                        .in_words = [this] { return hosts_in_words(); },
                        .end = [this] { on_signal(SIGTERM); },
                        .all = [this] { return drained_.all(); },
                        .drain = [this](const HostStatus& host) { drained_.drain(host); }});
  if (!control) return failed(kExitCannotCreate, control.error());
  control_ = std::move(*control);
  const auto look = [this](const auto& done) { control_->look(true, done); };
  if (auto ok = telemetry_.open(loop_, look, membership_.awaits_earlier()); !ok) {
    return failed(ok.error().os_errno == EADDRINUSE ? kExitRendezvous : kExitCannotCreate,
                  ok.error());
  }
  open_output();
  if (!plan_.output.panes_at.empty() && !plan_.quiet) {
    hub_->own_line("dlaunch: " + plan_.output.panes_at);
  }
  hub_->stdin_pump().set_give(
      [this](int node, const std::string& bytes) { membership_.give_input(node, bytes); });
  if (lease_ == nullptr) return true;
  lease_->take(to_string(shell_.endpoint()), [this](const std::string& why) {
    asio::post(loop_, [this, why] {
      if (ending_) return;
      log_warn("{}", why);
      led_elsewhere_ = true;
      loop_.stop();
    });
  });
  return true;
}

// Opens the store and reserves the ports of the workers.
Result<void> JobLeader::open_store() {
  if (auto done = shell_.open_store(secret_); !done) return done;
  common_.store_url = "tcp://" + to_string(shell_.endpoint());
  if (auto done = reserve_ports(plan_.master_port); !done) return done;
  membership_.set_own_addresses({{plan_.master_addr, ports_.master.port}, ports_.rank_numbers()});
  return {};
}

void JobLeader::show_progress() {
  const ProgressMode mode = plan_.output.progress;
  if (mode == ProgressMode::none) return;
  // With a leader apart from its host's agent, both write to the terminal.
  const bool live = mode == ProgressMode::automatic && hub_->draws() && !plan_.nodes.leads_only;
  progress_.emplace(
      loop_, *hub_, live, [this](const auto& done) { control_->look(false, done); },
      [this] { return telemetry_.pace(steady_now()); });
}

void JobLeader::start_hosts() {
  if (plan_.nodes.hosts.empty()) return;
  const auto leaves = [this](int node) {
    if (driver_) feed(JobCore::NodeDrain{node});
    let_go();
  };
  started_.emplace(
      loop_, plan_, *hub_, helpers_,
      StartedHosts::Handlers{
          .too_few = [this](int exit_code) { end(exit_code, "", {}); },
          .leaves = leaves,
          .gone = [this](int node) { membership_.release(node); },
          .order = [this](int node, const auto& what) { membership_.order(node, what); },
          .own_failure = [this] { return WorkerStarter::foresee_failure(plan_); }});
  shell_.on_output([this](UniqueFd fd, std::int32_t login, std::int32_t stream) {
    started_->take_output(std::move(fd), login, stream);
  });
  auto started = started_->start(secret_, to_string(shell_.endpoint()));
  if (!started) give_up(kExitRendezvous, started.error().what);  // reported once the loop runs
}

void JobLeader::let_go() {
  started_->let_go([this](int node) { return job().nobody_on(node); });
}

// All hosts have joined.
void JobLeader::begin() {
  JobDriver::Effects& effects = *this;
  JobConfig config = membership_.shape(job_config(plan_));
  if (job_ends_at_ != kNever) config.timeout = std::max(job_ends_at_ - steady_now(), Duration(1));
  if (writes_down() && config.timeout > Duration::zero()) {
    write_time_left_at_ = steady_now() + kWritesTimeLeft;
  }
  driver_.emplace(config, pump_, effects);
  if (started_) started_->begin();
  JobMonitor::Effects& watching = *this;
  monitor_.emplace(plan_, membership_, job(), watching);
  auto node = open_node(membership_.own_slots(), [this](const NodeMessage& message) {
    membership_.message(NodeMembership::kOwnLink, message);
  });
  if (!node) return give_up(kExitCannotCreate, node.error().what);
  node_ = std::move(*node);
  shell_.set_own(*node_);
  control_->begin({job(), *monitor_, [this](Slot slot) { return membership_.host_of(slot); },
                   [this](const JobCore::Event& event) { feed(event); }});
  if (plan_.stdin_to == StdinPlan::all) {
    for (const int other : membership_.others_here()) hub_->stdin_pump().expect(other);
  }
  const auto resumed = membership_.resumed();
  telemetry_.begins(job(), membership_.hosts_here(),
                    resumed ? std::optional(resumed->was) : std::nullopt);
  for (const int absent : membership_.absent()) feed(JobCore::NodeLost{absent});
  if (resumed) return take_over(*resumed);
  feed(JobCore::Start{});
}

// The problems of hosts that we start, and of hosts that join us.
std::vector<std::string> JobLeader::hosts_in_words() const {
  std::vector<std::string> lines;
  if (started_) lines = started_->in_words();
  for (auto& line : membership_.newcomers()) lines.push_back(std::move(line));
  for (auto& line : drained_.in_words()) lines.push_back(std::move(line));
  return lines;
}

// The job continues from the previous leader's state.
void JobLeader::take_over(const JobCore::Resume& resumed) {
  fenced_ = steady_now();
  log_warn("leading the job from here on, after round {}: {}", resumed.was.round,
           membership_.who_is_here());
  if (!JobCore::holds(resumed.was, resumed.found)) {
    log_warn("none of its last round's workers is here");
  }
  // If the job cannot go on without them, their loss is the reason.
  for (const int absent : membership_.absent()) {
    story_.lost_host(membership_.name_of(absent), membership_.ranks_before(absent));
  }
  feed(resumed);
  telemetry_.begin_round(job().round(), job().size());
  drained_.go_on();
}

void JobLeader::write_down(const JobRecord& record, std::function<void()> then) {
  JobJournal journal = membership_.journal(record);
  journal.drained = drained_.journal();
  lease_->write(encode(journal), [this, then] { asio::post(loop_, then); });
}

// Writes the job's last record again: only the drained hosts have changed.
void JobLeader::write_down_drained() {
  if (writes_down() && driver_) write_down(job().record(), [] {});
}

void JobLeader::give_up(int exit_code, const std::string& why) {
  log_error("{}", why);
  end(exit_code, why, {});
}

// The report comes last, after all output of the other hosts if we show it.
void JobLeader::end(int exit_code, const std::string& why, const std::vector<std::string>& report) {
  ending_ = true;
  exit_code_ = exit_code;
  if (progress_) progress_->end();
  telemetry_.events().job_ended(exit_code, why, steady_now() - began_, driver_ ? &job() : nullptr);
  const auto leave_last = [this, exit_code, report] {
    for (const auto& line : report) hub_->own_line("dlaunch: " + line);
    telemetry_.close([this] { return monitor_ && monitor_->owes_tail(); },
                     [this, exit_code] { leave(exit_code); });
  };
  std::set<int> linked;
  for (const int node : membership_.others_here()) linked.insert(node);
  membership_.finish(exit_code, why);
  if (!started_) return shell_.part(leave_last);
  shell_.part([] {});
  started_->finish([linked](int node) { return linked.contains(node); }, leave_last);
}

void JobLeader::on_signal(int signal) {
  if (driver_ && signals_.comes_from_all_hosts(signal) && !membership_.is_own_news(signal)) return;
  switch (signals_.take(signal, phase())) {
    case LeaderSignals::Answer::ignore:
      return;
    case LeaderSignals::Answer::leave:
      return loop_.stop();
    case LeaderSignals::Answer::give_up:
      interrupted_ = true;
      return give_up(128 + signal, "interrupted: " + membership_.who_is_here());
    case LeaderSignals::Answer::to_the_job:
      break;
  }
  feed(JobCore::Signal{signal});
  if (!signals_.gives_up(steady_now(), signal, driver_->held_up()) || ending_) return;
  interrupted_ = true;
  give_up(128 + signal, "interrupted, while the job's journal cannot be written");
}

LeaderSignals::Job JobLeader::phase() const {
  if (!driver_) return ending_ ? LeaderSignals::Job::ended : LeaderSignals::Job::gathers;
  return job().state() == JobState::ended ? LeaderSignals::Job::ended : LeaderSignals::Job::runs;
}

void JobLeader::on_idle() {
  if (!node_) return;
  telemetry_.events().observe(steady_now(), job());
  if (progress_) progress_->observe(job().state(), job().round());
  drained_.let_go();
  if (started_ && started_->some_leave()) let_go();
  arm_timer(std::min({job().deadline().value_or(kNever), node_->deadline().value_or(kNever),
                      end_signal_at_, write_time_left_at_}));
}

void JobLeader::on_timer() {
  if (!driver_) return on_waiting();
  if (!node_) return;
  node_->on_clock();
  if (steady_now() >= end_signal_at_) {
    end_signal_at_ = kNever;
    log_warn("the job's time is nearly up: {} to all workers", describe_signal(plan_.end_signal));
    feed(JobCore::Signal{plan_.end_signal});
  }
  if (steady_now() >= write_time_left_at_) write_time_left_at_ = steady_now() + kWritesTimeLeft;
  feed(JobCore::Clock{});
}

// Called while we wait for the job's hosts.
void JobLeader::on_waiting() {
  if (ending_) return;
  if (steady_now() >= job_ends_at_) {
    return give_up(kExitTimeout, "the job's --timeout passed: " + membership_.who_is_here());
  }
  log_warn("{}; waiting for the others", membership_.who_is_here());
  arm_timer(job_ends_at_);
}

// -- The job's orders

void JobLeader::perform(const JobCore::StartWorkers& start) {
  telemetry_.events().starts(start);
  if (start.all) {
    if (start.round > membership_.first_round()) {
      story_.tell_restart(job());
      all_start_again_ = true;
      node_->end_leftovers();
    }
    story_.begin_round(start.round, job().size());
    telemetry_.begin_round(start.round, job().size());
    monitor_->begin_round(start.round, job().size(), std::nullopt);
  }
  if (!start.all && job().are_tasks()) {
    for (const auto& place : start.places) story_.begins_again(place.rank);
  }
  membership_.start(start, job());
}

void JobLeader::perform(const JobCore::StopWorkers& stop) {
  if (job().state() == JobState::ending) story_.end_begins(monitor_->waits());
  membership_.stop(stop);
}

void JobLeader::perform(const JobCore::HandOn& pass) {
  const bool stops = pass.signal == SIGTSTP;
  if (stops || pass.signal == SIGCONT) monitor_->suspend(stops);
  membership_.hand_on(pass);
}

void JobLeader::perform(const JobCore::Fence& fence) {
  if (!fenced_) fenced_ = steady_now();
  membership_.fence(fence);
}

void JobLeader::perform(const JobCore::Announce& announce) {
  membership_.announce(announce);
  const int size = static_cast<int>(announce.slots.size());
  story_.begin_round(announce.round, size);
  telemetry_.begin_round(announce.round, size);
  monitor_->begin_round(announce.round, size, fenced_);
  if (fenced_) {
    log_warn("round {}: {} after {}", announce.round,
             size == 1 ? "1 worker" : std::to_string(size) + " workers",
             format_duration(steady_now() - *fenced_));
    fenced_.reset();
  }
}

// -- Events on a node

void JobLeader::feed(const JobCore::Event& event) {
  if (monitor_ && !std::holds_alternative<JobCore::Clock>(event)) monitor_->let_ends_pass();
  telemetry_.see(event, job());
  driver_->feed(event);
}

void JobLeader::on_lost(int node, const std::string& host) {
  story_.lost_host(host, job().ranks_on(node));
  telemetry_.events().observe(steady_now(), job());
  telemetry_.events().host_lost(host, node, job());
  on_left(node);
}

void JobLeader::on_left(int node) {
  monitor_->lost_host(node);
  feed(JobCore::NodeLost{node});
}

void JobLeader::on_back(int node, const std::string& host) {
  telemetry_.events().host_joined(host);
  feed(JobCore::NodeBack{node});
  if (!job().holds_back_on(node)) return;
  log_warn(
      "host {} has no workers yet: they start when all workers restart, or once the program has "
      "shown that it is elastic",
      host);
}

void JobLeader::on_ended(Slot slot, WorkerEnd end) {
  if (end.corrupt.empty() && job().accused(slot)) {
    // It ended outside the library's calls, so it could not leave a note.
    end.corrupt = "other ranks have found that";
    end.corrupt_rank = end.rank;
  }
  story_.ended(end, job().rank_of(slot));
  telemetry_.worker_ended(slot, end, job());
  monitor_->ended(slot, end);
}

void JobLeader::ended(Slot slot, const WorkerEnd& end) {
  const bool well = !has_failed(end);
  telemetry_.events().observe(steady_now(), job());
  telemetry_.events().ended(end, job());
  const int size_before = job().size();
  all_start_again_ = false;
  const std::string host = end.host.empty() ? plan_.host : end.host;
  if (end.is_corrupt()) {
    log_warn("rank {} on host {} had corrupt data: {}", end.rank, host, escaped(end.corrupt));
  }
  feed(JobCore::Ended{.slot = slot,
                      .well = well,
                      .consequence = end.peer_lost >= 0,
                      .kind = failure_kind(end),
                      .code = end.signal != 0 ? end.signal : end.exit_code,
                      .signature = signature_of(end),
                      .exact = signature_of(end, true),
                      .second_hand = speaks_of_others(end),
                      .ran = end.ended - end.started,
                      .by_itself = end.signal_we_sent == 0});
  if (job().state() == JobState::ending || job().state() == JobState::ended) return;
  // A broken machine corrupts data again: its host is drained as if the user had asked for it, if
  // the job can do without it. A successor would start there a moment later.
  if (end.is_corrupt() && plan_.nodes.several()) control_->drain(host);
  node_->end_leftovers();
  if (well || all_start_again_) return;  // the start has reported it
  if (job().some_stay()) return tell_loss(slot, end, size_before);
  const std::string pause = pause_before(slot);
  if (!pause.empty()) log_warn("rank {} failed; all workers are started again{}", end.rank, pause);
}

// " in 1.3 s": the delay before its successor starts; empty if it is too short to read.
std::string JobLeader::pause_before(Slot slot) const {
  const auto at = job().starts_at(slot);
  const Duration pause = at ? *at - steady_now() : Duration::zero();
  return pause < kPauseWorthTelling ? "" : " in " + format_duration(pause);
}

// About one worker, in a job that goes on with the others.
void JobLeader::tell_loss(Slot slot, const WorkerEnd& end, int size_before) const {
  if (end.was_stopped()) return;
  story_.tell_loss(end, what_follows(job(), slot, end.rank, size_before, pause_before(slot)),
                   job());
}

void JobLeader::perform(const JobCore::Finish& how) {
  interrupted_ = how.end == JobEnding::interrupted;
  monitor_->stop();
  node_->finish();
  std::vector<int> left;
  const Processes& processes = node_->processes();
  for (const Slot slot : processes.running_slots()) left.push_back(processes.place(slot).rank);
  telemetry_.finish();
  story_.set_goodput(telemetry_.goodput());
  auto ending = story_.finish(how, job(), std::move(left), [this](int rank, const auto& lines) {
    return hub_->shown_last(rank, lines);
  });
  telemetry_.write_trace();
  if (plan_.says_all && ending.exit_code == 1) ending.report.clear();
  const bool well = ending.exit_code == kExitOk || ending.report.empty();
  end(ending.exit_code, well ? "" : ending.report.front(), ending.report);
}

}  // namespace

std::optional<int> lead_job(const Plan& plan, std::optional<JobJournal> was, const JobDir& job_dir,
                            UniqueFd signals, const OriginalSignals& original, LeaderLease* lease) {
  JobLeader leader(plan, job_dir, std::move(signals), original, std::move(was));
  if (lease == nullptr) return leader.run();
  leader.set_lease(*lease);
  const auto exit_code = leader.run();
  // Slurm may be about to end the job and start it again.
  const bool may_go_on = !plan.nodes.slurm_job.empty() && leader.interrupted();
  if (exit_code && !may_go_on) lease->leave();
  lease->rest();
  return exit_code;
}

}  // namespace dlaunch
