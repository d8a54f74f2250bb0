#include "tests/sim/agent_shell.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "elastic/admission.h"

namespace dlaunch::sim {

namespace {

JobSlots slots_of(const JobConfig& job) {
  const auto all = static_cast<std::size_t>(JobCore::slots(job));
  return {job.nodes.empty() ? std::vector<int>(all, 0) : job.nodes, job.size};
}

}  // namespace

AgentShell::AgentShell(const JobConfig& job, Duration grace, Outside& outside, Saboteur& saboteur)
    : outside_(outside), saboteur_(saboteur), config_(job), slots_(slots_of(job)), grace_(grace) {
  JobDriver::Effects& effects = *this;
  job_.emplace(config_, pump_, effects);
  const auto nodes = slots_.nodes();
  const int last = *std::max_element(nodes.begin(), nodes.end());
  hosts_.resize(static_cast<std::size_t>(last) + 1);
  for (int number = 0; number <= last; ++number) add_host(number);
}

void AgentShell::add_host(int number) {
  auto& place = hosts_[static_cast<std::size_t>(number)];
  if (place) gone_.push_back(std::move(place));  // it may be at work
  std::vector<Slot> here;
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (node_of(slot) == number) here.push_back(slot);
  }
  place = std::make_unique<HostShell>(
      HostShell::Setting{number, here, grace_, config_.join_timeout}, last_worker_, pump_, outside_,
      [this, number](const NodeMessage& message) { hear(number, message); });
}

void AgentShell::start() {
  gather();
  for (const int node : members_) welcome(node);
  feed(JobCore::Start{});
}

TimePoint AgentShell::timer() const {
  TimePoint next = leads_ ? job().deadline().value_or(kNever) : kNever;
  for (const auto& host : hosts_) next = std::min(next, host->deadline().value_or(kNever));
  return next;
}

void AgentShell::on_timer() {
  for (const auto& host : hosts_) host->on_clock();
  feed(JobCore::Clock{});
}

void AgentShell::feed(const JobCore::Event& event) {
  if (leads_) job_->feed(event);
}

// -- Hosts

void AgentShell::on_node_lost(int node) {
  cut_.insert(node);
  add_host(node);
  leave(node);
}

void AgentShell::on_node_cut(int node) {
  cut_.insert(node);
  host(node).feed(NodeSession::Lost{"the line is cut"});
  leave(node);
}

void AgentShell::on_attempt(int node) {
  if (cut_.contains(node)) host(node).feed(LeaderSearch::Failure{.why = "the line is cut"});
}

void AgentShell::on_node_back(int node) {
  cut_.erase(node);
  if (host(node).gave_up()) add_host(node);
  if (leads_) host(node).feed(NodeSession::Opened{});
}

void AgentShell::leave(int node) {
  offers_.erase(node);
  if (members_.erase(node) > 0 && leads_) feed(JobCore::NodeLost{node});
}

// All hosts with a connection join.
void AgentShell::gather() {
  begun_ = false;
  members_.clear();
  offers_.clear();
  for (int node = 0; node < nodes(); ++node) {
    if (!cut_.contains(node)) host(node).feed(NodeSession::Opened{});
  }
  begun_ = true;
  for (const auto& [node, join] : offers_) members_.insert(node);
}

void AgentShell::welcome(int node) {
  order(node,
        NodeWelcome{.number = node, .slots = slots_.count_on(node), .run = std::to_string(run_)});
}

void AgentShell::join(int node, const NodeJoin& join) {
  const auto admission =
      admit({.host = join.host, .job = "", .run = join.run, .has_workers = !join.found.empty()},
            {.job = "",
             .run = std::to_string(run_),
             .leader = "",
             .elects = true,
             .continues = written_.round > 0,
             .awaits_earlier = written_.round > 0 && !begun_,
             .begun = begun_});
  switch (admission.answer) {
    case Admission::Answer::refuse:
      return order(node, NodeRefused{admission.why});
    case Admission::Answer::clear:
      return order(node, NodeClear{});
    case Admission::Answer::take_in:
      return static_cast<void>(offers_[node] = join);
    case Admission::Answer::wait:
    case Admission::Answer::test:
      return order(node, NodeTest{});
  }
}

// A message of a host's dlaunch.
void AgentShell::hear(int node, const NodeMessage& sent) {
  if (!leads_ || cut_.contains(node)) return;
  const auto arrives = saboteur_.sent(now(), sent);
  if (!arrives) return;
  const NodeMessage& message = *arrives;
  if (const auto* asks = std::get_if<NodeJoin>(&message)) return join(node, *asks);
  if (std::holds_alternative<NodeTested>(message)) {
    members_.insert(node);
    welcome(node);
    return feed(JobCore::NodeBack{node});
  }
  if (!members_.contains(node)) return;
  if (const auto* failed = std::get_if<NodeStartFailed>(&message)) {
    tell(node, JobCore::SpawnFailed{failed->slot});
  } else if (const auto* not_started = std::get_if<NodeNotStarted>(&message)) {
    tell(node, JobCore::Ended{not_started->slot, true});
  } else if (const auto* ended = std::get_if<NodeEnded>(&message)) {
    tell(node, JobCore::Ended{.slot = ended->slot,
                              .well = ended->end.exit_code == 0,
                              .consequence = ended->end.peer_lost >= 0,
                              .ran = ended->end.ended - ended->end.started});
  } else {
    std::visit(
        [&](const auto& what) {
          if constexpr (std::is_constructible_v<JobCore::Event, decltype(what)>) tell(node, what);
        },
        message);
  }
}

// The event has the node's slot.
void AgentShell::tell(int node, JobCore::Event event) {
  std::visit(
      [&](auto& what) {
        if constexpr (requires { what.slot; }) what.slot = slots_.slot_of(node, what.slot);
      },
      event);
  feed(event);
}

void AgentShell::order(int node, const NodeMessage& message) {
  if (!cut_.contains(node)) host(node).feed(NodeSession::Heard{message});
}

void AgentShell::order(const std::vector<NodeOrder>& orders) {
  for (const auto& [node, message] : orders) order(node, message);
}

void AgentShell::order_all(const NodeMessage& message) {
  for (const int node : members_) order(node, message);
}

// -- The leader

void AgentShell::lose_leader(Loss how) {
  if (how != Loss::at_once) return static_cast<void>(doomed_ = how);
  leads_ = false;
  for (int node = 0; node < nodes(); ++node) {
    if (!cut_.contains(node)) host(node).feed(NodeSession::Lost{"the leader is lost"});
  }
  outside_.leader_lost();
}

void AgentShell::write_down(const JobRecord& record, std::function<void()> then) {
  const auto doomed = std::exchange(doomed_, {});
  if (doomed != Loss::unwritten) written_ = record;
  if (doomed) return lose_leader(Loss::at_once);
  then();
}

void AgentShell::take_over() {
  JobDriver::Effects& effects = *this;
  job_.emplace(config_, pump_, effects);
  leads_ = true;
  if (written_.round == 0) ++run_;
  gather();
  pump_.post([this] {  // the hosts' answers come after the job has begun
    for (int node = 0; node < nodes(); ++node) {
      if (!members_.contains(node)) feed(JobCore::NodeLost{node});
    }
    written_.round == 0 ? feed(JobCore::Start{}) : feed(resumed());
    for (const int node : members_) welcome(node);
  });
}

JobCore::Resume AgentShell::resumed() const {
  JobCore::Resume resume{written_, {}};
  for (const auto& [node, join] : offers_) {
    for (const NodeFound& found : join.found) {
      resume.found.push_back({slots_.slot_of(node, found.slot), found.done, found.linked,
                              found.ready, found.in_round, found.round, found.version});
    }
  }
  return resume;
}

// -- The job's wishes

std::vector<JobCore::Action> AgentShell::decide(JobCore& core, const JobCore::Event& event) {
  const auto heard = saboteur_.heard(event);
  outside_.sees(heard);
  const JobState from = core.state();
  auto actions = core.step(now(), heard);
  outside_.moved({from, JobCore::kind_of(heard), core.state()});
  return saboteur_.said(std::move(actions));
}

void AgentShell::perform(const JobCore::StartWorkers& start) {
  outside_.sees(start);
  order(orders(start, job(), slots_, std::vector<NodeAddresses>(hosts_.size())));
}

void AgentShell::perform(const JobCore::StopWorkers& stop) {
  outside_.sees(stop);
  order(orders(stop, slots_));
}

void AgentShell::perform(const JobCore::HandOn& pass) {
  outside_.sees(pass);
  order_all(NodeHandOn{pass.signal});
}

void AgentShell::perform(const JobCore::Fence& fence) {
  outside_.sees(fence);
  order_all(NodeFence{fence.round, fence.lost});
}

void AgentShell::perform(const JobCore::Announce& announce) {
  outside_.sees(announce);
  order(orders(announce, slots_));
}

void AgentShell::perform(const JobCore::Finish& how) { outside_.sees(how); }

}  // namespace dlaunch::sim
