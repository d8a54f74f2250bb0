#include "launcher/lead/job_control.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "launcher/lead/report/goodput_report.h"
#include "launcher/wire/json_text.h"
#include "launcher/wire/stack_groups.h"

namespace dlaunch {
namespace {

// Unquoted, for people; of several programs with " : " between them.
std::string command_of(const Plan& plan) {
  std::string text;
  const auto add = [&text](const std::vector<std::string>& argv) {
    for (const auto& word : argv) {
      if (!text.empty()) text += &word == &argv.front() ? " : " : " ";
      text += escaped(word);
    }
  };
  if (plan.programs.empty()) add(plan.argv);
  for (const JobProgram& program : plan.programs) add(program.argv);
  return text;
}

using nlohmann::json;

std::string refused(const std::string& why) { return json_text({{"ok", false}, {"error", why}}); }

// The lines are JSON already.
// So long the job's hosts wait for their next leader; "null": the job ends with its leader.
std::string next_leader_ms(const Plan& plan) {
  using std::chrono::duration_cast, std::chrono::milliseconds;
  if (!plan.nodes.outlives_leader()) return "null";
  return std::to_string(duration_cast<milliseconds>(plan.join_timeout).count());
}

std::string feed_text(const char* name, const EventFeed::Answer& answer, const std::string& wait) {
  return fmt::format(R"({{"ok":true,"{}":[{}],"next":{},"missing":{},"next_leader_ms":{}}})", name,
                     fmt::join(answer.lines, ","), answer.next, answer.missing, wait);
}

// The stacks of several workers, a few at a time: each takes a process and reads whole libraries.
class ManyStacks : public std::enable_shared_from_this<ManyStacks> {
 public:
  ManyStacks(JobMonitor& monitor, std::vector<WorkerStatus> workers, ControlServer::Reply reply)
      : monitor_(monitor),
        workers_(std::move(workers)),
        reply_(std::move(reply)),
        answers_(workers_.size()) {}

  void start() {
    constexpr std::size_t kAtATime = 4;
    if (workers_.empty()) return tell();
    while (next_ < std::min(kAtATime, workers_.size())) look_at_next();
  }

 private:
  void look_at_next() {
    const std::size_t i = next_++;
    monitor_.dump(workers_[i].slot,
                  [self = shared_from_this(), i](int, const std::vector<std::string>& lines) {
                    self->add(i, lines);
                  });
  }

  void add(std::size_t i, const std::vector<std::string>& lines) {
    const WorkerStatus& worker = workers_[i];
    answers_[i] = {{"rank", number_or_null(worker.rank)},
                   {"pid", worker.pid},
                   {"host", worker.host},
                   {"lines", lines}};
    stacks_[static_cast<int>(i)] = lines;
    if (next_ < workers_.size()) look_at_next();
    if (++answered_ == workers_.size()) tell();
  }

  void tell() {
    const auto groups = group_stacks(stacks_);
    for (std::size_t group = 0; group < groups.size(); ++group) {
      for (const int i : groups[group].ranks) {
        answers_[static_cast<std::size_t>(i)]["group"] = group;
        answers_[static_cast<std::size_t>(i)]["place"] = groups[group].place;
      }
    }
    reply_(json_text({{"ok", true}, {"stacks", answers_}}));
  }

  JobMonitor& monitor_;
  const std::vector<WorkerStatus> workers_;
  const ControlServer::Reply reply_;
  std::vector<json> answers_;
  RankStacks stacks_;  // by the number of the answer: spares have no rank
  std::size_t next_ = 0, answered_ = 0;
};

// The kernel's state of a process that should be running, in words.
std::string state_in_words(const std::string& state, ProcessState seen) {
  if (seen == ProcessState::stopped) return "stopped by a signal";
  if (seen == ProcessState::traced) return "being traced";
  return state;
}

}  // namespace

Result<std::unique_ptr<JobControl>> JobControl::open(asio::io_context& loop,
                                                     const std::string& folder, const Plan& plan,
                                                     JobTelemetry& telemetry, Hosts hosts) {
  std::unique_ptr<JobControl> control(new JobControl(plan, telemetry, std::move(hosts)));
  auto server = ControlServer::open(
      loop, folder + "/" + kControlSocket, kMaxControlRequest,
      [c = control.get()](const std::string& request, const ControlServer::Reply& reply) {
        c->answer(request, reply);
      });
  if (!server) return server.error();
  control->server_ = std::move(*server);
  return control;
}

JobControl::JobControl(const Plan& plan, JobTelemetry& telemetry, Hosts hosts)
    : plan_(plan), telemetry_(telemetry), hosts_(std::move(hosts)) {}

// Judges the job's state once all hosts have answered.
void JobControl::answer(const std::string& request, const ControlServer::Reply& reply) {
  const auto parsed = parse_control_request(request);
  if (!parsed) return reply(refused(parsed.error().what));
  if (parsed->command == ControlRequest::Command::events) {
    return telemetry_.ask_events(
        parsed->after, [reply, wait = next_leader_ms(plan_)](const EventFeed::Answer& answer) {
          reply(feed_text("events", answer, wait));
        });
  }
  if (parsed->command == ControlRequest::Command::tail) return tail(*parsed, reply);
  look(parsed->command == ControlRequest::Command::top,
       [this, request = *parsed, reply](const JobStatus& now) { decide_on(request, now, reply); });
}

void JobControl::tail(const ControlRequest& request, const ControlServer::Reply& reply) {
  const int rank = request.number.value_or(-1);
  if (!job_) return reply(refused("the job has not begun"));
  if (plan_.output.mode == OutputMode::raw) {
    return reply(refused("its output does not pass through dlaunch: it has --output raw"));
  }
  if (rank >= job_->core.size()) return reply(refused(no_such_rank(rank, job_->core.size())));
  job_->monitor.tail(rank, request.after,
                     [reply, wait = next_leader_ms(plan_)](const auto& answer) {
                       reply(feed_text("lines", answer, wait));
                     });
}

void JobControl::look(bool gpus, const std::function<void(const JobStatus&)>& done) {
  if (!job_) return done(status_before());
  job_->monitor.survey(gpus, [this, done](const Workers& workers) {
    const JobStatus now = status(workers);
    telemetry_.looked(now);
    done(now);
  });
}

void JobControl::decide_on(const ControlRequest& request, const JobStatus& now,
                           const ControlServer::Reply& reply) {
  const ControlDecision decision = decide(request, now);
  if (!decision.refused.empty()) return reply(refused(decision.refused));
  switch (request.command) {
    case ControlRequest::Command::status:
    case ControlRequest::Command::top:
      return reply(fmt::format(R"({{"ok":true,"next_leader_ms":{},"status":{}}})",
                               next_leader_ms(plan_), render_json(now)));
    case ControlRequest::Command::goodput:
      return reply(json_text({{"ok", true}, {"goodput", goodput_json(goodput_with(now.late))}}));
    case ControlRequest::Command::stacks:
      return std::make_shared<ManyStacks>(job_->monitor, decision.stacks_of, reply)->start();
    default:
      log_warn("dlaunchctl: {}", decision.done);
      telemetry_.events().ordered(decision.done);
      reply(json_text({{"ok", true}, {"done", decision.done}}));
      carry_out(decision);
  }
}

// Asks no host for figures: the decision needs none, and one of the hosts may not answer.
void JobControl::drain(const std::string& host) {
  const JobStatus now = status({});
  const bool is_drained = std::ranges::any_of(
      now.all_hosts, [&](const HostStatus& other) { return other.name == host && other.drained; });
  if (is_drained) return;
  const ControlDecision decision =
      decide({.command = ControlRequest::Command::drain, .host = host}, now);
  if (!decision.refused.empty()) {
    return log_warn("host {} is not drained: {}", host, decision.refused);
  }
  log_warn("{}; 'dlaunchctl undrain {}' takes it back", decision.done, host);
  telemetry_.events().ordered(decision.done);
  carry_out(decision);
}

// Before the job has begun the only order is to end it.
void JobControl::carry_out(const ControlDecision& decision) {
  if (!job_) return hosts_.end();
  if (decision.drain) hosts_.drain(*decision.drain);
  if (decision.event) job_->feed(*decision.event);
}

JobStatus JobControl::status_before() const {
  return {.now = steady_now(),
          .job_id = plan_.job_id,
          .host = plan_.host,
          .program = command_of(plan_),
          .several_programs = plan_.programs.size() > 1,
          .waits_for = "its hosts: " + hosts_.who_is_here(),
          .hosts_here = hosts_.here(),
          .hosts_wanted = plan_.nodes.max,
          .hosts = hosts_.in_words(),
          .restarts_left = plan_.max_restarts.restarts,
          .restarts = plan_.max_restarts,
          .ran = steady_now() - started_,
          .pace = telemetry_.pace(steady_now())};
}

// The first of several late ranks stands for all of them.
Goodput JobControl::goodput_with(const std::vector<LateRanks>& late) const {
  std::vector<OpenWait> open;
  open.reserve(late.size());
  for (const LateRanks& wait : late) {
    open.push_back({wait.waiting, wait.ranks.empty() ? -1 : *wait.ranks.begin(), wait.waited});
  }
  return telemetry_.goodput_with(open);
}

JobStatus JobControl::status(const Workers& workers) const {
  const JobCore& core = job_->core;
  JobStatus status = status_before();
  status.state = core.state();
  status.phase =
      phase_of(core.state(), telemetry_.counters().rounds > 0, telemetry_.counters().exit_code);
  status.round = core.round();
  status.size = core.size();
  status.target_size = core.target_size();
  status.resized_from = core.resized_from();
  status.min_size = core.min_size();
  status.max_size = core.max_size();
  status.waits_for = core.waits_for();
  status.restarts_used = core.restarts_used();
  status.restarts_left = core.restarts_left(status.now);
  status.late = job_->monitor.late();
  status.goodput = goodput_with(status.late).summary();
  for (Slot slot = 0; slot < core.slots(); ++slot) {
    WorkerStatus worker = status_of(slot, workers, status.now);
    if (worker.rank >= 0 || worker.pid > 0 || worker.state != "absent") {
      status.workers.push_back(std::move(worker));
    }
  }
  std::ranges::stable_sort(status.workers, [](const WorkerStatus& a, const WorkerStatus& b) {
    return static_cast<unsigned>(a.rank) < static_cast<unsigned>(b.rank);
  });
  std::map<int, int> members;  // by node
  for (WorkerStatus& worker : status.workers) {
    if (worker.rank >= 0) worker.local_rank = members[core.node_of(worker.slot)]++;
  }
  status.all_hosts = hosts_.all();
  for (HostStatus& host : status.all_hosts) host.ranks = host.left ? 0 : members[host.node];
  return status;
}

WorkerStatus JobControl::status_of(Slot slot, const Workers& workers, TimePoint now) const {
  const JobCore& core = job_->core;
  WorkerStatus worker{.slot = slot,
                      .rank = core.rank_of(slot),
                      .host = job_->host_of(slot),
                      .up = core.runs(slot),
                      .linked = core.linked(slot),
                      .state = core.life_of(slot)};
  if (const auto waited = telemetry_.counters().wait_of(worker.rank)) {
    worker.wait_s = waited;
    worker.step_s =
        telemetry_.counters().last_step->ranks[static_cast<std::size_t>(worker.rank)].step;
  }
  if (!plan_.programs.empty() && worker.rank >= 0) {
    worker.program = escaped(plan_.argv_of(worker.rank).at(0));
  }
  const auto it = workers.find(slot);
  if (it == workers.end()) return worker;
  const NodeWorker& process = it->second;
  worker.pid = process.pid;
  worker.ran = std::max(Duration::zero(), now - process.started);
  worker.figures = process;
  if (worker.up) worker.state = state_in_words(worker.state, process.state);
  if (!process.operations.empty()) worker.operation = process.operations.back();
  return worker;
}

}  // namespace dlaunch
