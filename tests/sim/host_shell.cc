#include "tests/sim/host_shell.h"

#include <signal.h>

#include <numeric>
#include <utility>

namespace dlaunch::sim {
namespace {

NodeSession::Config session_config(const HostShell::Setting& setting) {
  return {.join = {.host = "host" + std::to_string(setting.number), .number = setting.number},
          .search = {.elects = true, .join_timeout = setting.join_timeout},
          .endpoint = {},
          .key_file = {}};
}

}  // namespace

HostShell::HostShell(const Setting& setting, int& last_worker, Pump& pump, Outside& outside,
                     Send send)
    : setting_(setting),
      last_worker_(last_worker),
      pump_(pump),
      outside_(outside),
      send_(std::move(send)),
      session_(outside.clock(), session_config(setting)),
      driver_(static_cast<int>(setting.slots.size()), setting.grace, pump, *this) {}

void HostShell::feed(const NodeSession::Event& event) {
  pump_.post([this, event] {
    for (const auto& action : session_.step(now(), event)) {
      if (gave_up_) return;
      std::visit([this](const auto& what) { perform(what); }, action);
    }
  });
}

int HostShell::worker_in(Slot slot) const {
  const auto place = places_.find(slot);
  return place != places_.end() && place->second.running ? place->second.worker : 0;
}

// -- Orders

void HostShell::perform(const NodeSession::Order& order) {
  std::visit([this](const auto& what) { on(what); }, order.what);
}

void HostShell::on(const NodeStart& start) {
  std::vector<JobCore::Place> places;
  for (const auto& place : start.places) {
    if (worker_in(place.slot) != 0) continue;  // the checker has said so
    places.push_back({place.slot, place.rank});
  }
  driver_.start(start.round, places);
}

void HostShell::on(const NodeFence& fence) {
  for (const auto& [slot, place] : places_) {
    if (place.running) outside_.send(place.worker, FenceNotice{fence.round, fence.lost});
  }
}

void HostShell::on(const NodeAnnounce& announce) {
  for (const auto& [slot, rank, local_rank] : announce.places) {
    places_[slot].rank = rank;
    const RoundNotice notice{.round = announce.round, .rank = rank, .size = announce.size};
    if (worker_in(slot) != 0) outside_.send(places_[slot].worker, notice);
  }
}

void HostShell::perform(const NodeSession::KillWorkers&) {
  std::vector<Slot> all(setting_.slots.size());
  std::iota(all.begin(), all.end(), 0);
  driver_.stop(all, SIGKILL);
}

void HostShell::perform(const NodeSession::End&) {
  gave_up_ = true;
  outside_.host_gave_up(setting_.number);
}

// -- Processes

SpawnError HostShell::spawn(Slot slot, int rank, int round) {
  const int worker = ++last_worker_;
  if (!outside_.start(job_slot(slot), worker, rank, round))
    return {dlaunch::Stage::exec, 0, "it cannot start"};
  places_[slot] = {worker, rank, true, now()};
  return {};
}

void HostShell::looks_on(const AgentCore::Action& action) {
  AgentCore::Action with_job_slot = action;
  std::visit([this](auto& what) { what.slot = job_slot(what.slot); }, with_job_slot);
  outside_.sees(with_job_slot);
}

void HostShell::perform(const AgentCore::SendSignal& send) {
  if (const int worker = worker_in(send.slot)) outside_.signal(worker, send.number);
}

void HostShell::on_ready(int worker, int left, std::uint64_t version) {
  for (const auto& [slot, place] : places_) {
    if (place.running && place.worker == worker) return say(NodeReady{slot, left, version, {}});
  }
}

void HostShell::on_never_ran(Slot slot) {
  places_[slot].running = false;
  driver_.never_ran(slot, {dlaunch::Stage::exec, 0, "it never ran"});
}

// Reports the rank whose loss it blames first, if that has ended already.
void HostShell::on_ended(Slot slot, End end) {
  for (const auto& [other, place] : std::map(places_)) {
    const bool blamed = !end.well && end.blames >= 0 && place.rank == end.blames;
    if (blamed && place.running && outside_.has_ended(place.worker)) outside_.reap(place.worker);
  }
  Place& place = places_[slot];
  place.running = false;
  driver_.exited(slot);
  NodeEnded ended{slot, {}};
  ended.end.rank = place.rank;
  ended.end.started = place.started;
  ended.end.ended = now();
  ended.end.exit_code = end.well ? 0 : 1;
  ended.end.peer_lost = end.blames;
  say(ended);
}

}  // namespace dlaunch::sim
