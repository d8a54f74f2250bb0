#include "tests/sim/agent_shell.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dlaunch::sim {

AgentShell::AgentShell(const JobConfig& job, Duration grace, Outside& outside, Saboteur& saboteur)
    : outside_(outside),
      saboteur_(saboteur),
      config_(job),
      grace_(grace),
      nodes_of_(job.nodes),
      places_(static_cast<std::size_t>(JobCore::slots(job))) {
  JobDriver::Effects& effects = *this;
  job_.emplace(config_, pump_, effects);
  const int last = nodes_of_.empty() ? 0 : *std::max_element(nodes_of_.begin(), nodes_of_.end());
  nodes_.resize(static_cast<std::size_t>(last) + 1);
  for (std::size_t number = 0; number < nodes_.size(); ++number) add_node(number);
}

void AgentShell::add_node(std::size_t number) {
  NodeDriver::Effects& effects = *this;
  nodes_[number] = std::make_unique<NodeDriver>(slots(), grace_, pump_, effects);
}

TimePoint AgentShell::timer() const {
  TimePoint next = leads_ ? job().deadline().value_or(kNever) : kNever;
  for (const auto& node : nodes_) next = std::min(next, node->deadline().value_or(kNever));
  return next;
}

void AgentShell::on_timer() {
  for (const auto& node : nodes_) node->on_clock();
  feed(JobCore::Clock{});
}

void AgentShell::on_node_lost(int node) {
  lost_.insert(node);
  add_node(static_cast<std::size_t>(node));
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (node_of(slot) == node) at(slot).running = false;
  }
  if (leads_) feed(JobCore::NodeLost{node});
}

void AgentShell::on_node_back(int node) {
  lost_.erase(node);
  feed(JobCore::NodeBack{node});
}

void AgentShell::on_ready(const Ready& ready) {
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (worker_in(slot) != ready.worker) continue;
    JobCore::Found& found = at(slot).found;
    found.linked = true;
    if (ready.left == found.in_round) found.ready = true, found.version = ready.version;
    return feed(JobCore::Ready{slot, ready.left, ready.version});
  }
}

// -- The leader

void AgentShell::feed(const JobCore::Event& event) {
  const bool end = std::holds_alternative<JobCore::Ended>(event) ||
                   std::holds_alternative<JobCore::SpawnFailed>(event) ||
                   std::holds_alternative<JobCore::Unkillable>(event);
  if (leads_) return job_->feed(event);
  if (const auto* ended = std::get_if<JobCore::Ended>(&event)) {
    std::erase_if(unheard_, [&](const auto& earlier) {
      const auto* stuck = std::get_if<JobCore::Unkillable>(&earlier);
      return stuck != nullptr && stuck->slot == ended->slot;
    });
  }
  if (end) unheard_.push_back(event);
}

void AgentShell::lose_leader(Loss how) {
  if (how != Loss::at_once) return static_cast<void>(doomed_ = how);
  leads_ = false;
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
  for (const int node : lost_) feed(JobCore::NodeLost{node});
  if (written_.round == 0) return feed(JobCore::Start{});
  const auto unheard = std::exchange(unheard_, {});
  JobCore::Resume resume{written_, {}};
  for (Slot slot = 0; slot < slots(); ++slot) {
    Place& place = at(slot);
    const bool ended = std::any_of(unheard.begin(), unheard.end(), [=](const auto& event) {
      return std::visit(
          [=](const auto& what) {
            if constexpr (requires { what.slot; }) return what.slot == slot;
            return false;
          },
          event);
    });
    if (place.worker == 0 || !reachable(slot)) continue;
    if (ended) place.found.ready = false;
    if (place.running || ended || place.found.done) resume.found.push_back(place.found);
  }
  feed(resume);
  for (const auto& event : unheard) feed(event);
}

// -- The job's wishes

std::vector<JobCore::Action> AgentShell::decide(JobCore& core, const JobCore::Event& event) {
  const auto heard = saboteur_.heard(event);
  outside_.sees(heard);
  return saboteur_.said(core.step(now(), heard));
}

void AgentShell::perform(const JobCore::StartWorkers& start) {
  outside_.sees(start);
  std::map<int, std::vector<JobCore::Place>> places;
  for (const auto& place : start.places) places[node_of(place.slot)].push_back(place);
  for (const auto& [number, here] : places) node(number).start(start.round, here);
}

void AgentShell::perform(const JobCore::StopWorkers& stop) {
  outside_.sees(stop);
  for (const Slot slot : stop.slots) node(node_of(slot)).stop({slot}, stop.signal);
}

void AgentShell::perform(const JobCore::HandOn& pass) {
  outside_.sees(pass);
  for (const auto& node : nodes_) node->hand_on(pass.signal);
}

void AgentShell::perform(const JobCore::Fence& fence) {
  outside_.sees(fence);
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (at(slot).running) outside_.send(at(slot).worker, FenceNotice{fence.round, fence.lost});
  }
}

void AgentShell::perform(const JobCore::Announce& announce) {
  outside_.sees(announce);
  RoundNotice notice{.round = announce.round, .size = static_cast<int>(announce.slots.size())};
  for (const Slot slot : announce.slots) {
    at(slot).rank = notice.rank;
    at(slot).found.in_round = at(slot).found.round = announce.round;
    at(slot).found.ready = false;
    outside_.send(at(slot).worker, notice);
    ++notice.rank;
  }
}

void AgentShell::perform(const JobCore::Finish& how) { outside_.sees(how); }

// -- This node's reports

bool AgentShell::spawn(Slot slot, int rank, int round) {
  const int worker = ++last_worker_;
  if (!outside_.start(slot, worker, rank, round)) return false;
  at(slot) = {worker, rank, true, now(), {.slot = slot, .round = round}};
  return true;
}

void AgentShell::perform(const AgentCore::SendSignal& send) {
  if (at(send.slot).running) outside_.signal(at(send.slot).worker, send.number);
}

void AgentShell::on_never_ran(Slot slot) {
  at(slot).running = false;
  node(node_of(slot)).never_ran(slot);
}

// Reports the rank whose loss it blames first, if that has ended already.
void AgentShell::on_ended(Slot slot, End end) {
  if (!end.well && end.blames >= 0) {
    for (const Place& other : places_) {
      if (other.running && other.rank == end.blames && outside_.has_ended(other.worker)) {
        outside_.reap(other.worker);
      }
    }
  }
  at(slot).running = false;
  at(slot).found.done = end.well && leads_;
  node(node_of(slot)).exited(slot);
  feed(JobCore::Ended{.slot = slot,
                      .well = end.well,
                      .consequence = end.blames >= 0,
                      .ran = now() - at(slot).started});
}

}  // namespace dlaunch::sim
