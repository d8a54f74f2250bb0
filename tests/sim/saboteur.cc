#include "tests/sim/saboteur.h"

#include <algorithm>
#include <utility>

#include "tests/sim/scenario.h"

namespace dlaunch::sim {
namespace {

constexpr const char* kNames[kBugs] = {"none",          "lost fences",      "believed old",
                                       "reused number", "clock back",       "dead member",
                                       "spare twice",   "forgotten member", "forgotten offer",
                                       "false ready",   "lost report",      "uncleared"};

}  // namespace

const char* to_string(Bug bug) { return kNames[static_cast<int>(bug)]; }

void Saboteur::note(const JobCore::Event& event) {
  if (const auto* spawned = std::get_if<JobCore::Spawned>(&event)) down_.erase(spawned->slot);
  const auto* ended = std::get_if<JobCore::Ended>(&event);
  if (ended == nullptr) return;
  down_.insert(ended->slot);
  if (static_cast<std::size_t>(ended->slot) < told_.size()) {
    told_[static_cast<std::size_t>(ended->slot)] = 0;
  }
}

JobCore::Event Saboteur::heard(const JobCore::Event& event) {
  note(event);
  const auto* ready = std::get_if<JobCore::Ready>(&event);
  if (bug_ == Bug::believed_old && ready != nullptr) {
    JobCore::Ready believed = *ready;
    const auto slot = static_cast<std::size_t>(ready->slot);
    if (slot < told_.size() && told_[slot] > 0) believed.left = told_[slot];
    return believed;
  }
  return event;
}

std::optional<NodeMessage> Saboteur::sent(TimePoint now, NodeMessage message) {
  if (auto* join = std::get_if<NodeJoin>(&message)) {
    auto& found = join->found;
    if (bug_ == Bug::uncleared) found.clear();
    if (found.empty()) return message;
    if (bug_ == Bug::forgotten_offer) found.pop_back();
    if (bug_ == Bug::false_ready) found.back().ready = true;
  }
  const auto* ended = std::get_if<NodeEnded>(&message);
  if (bug_ == Bug::lost_report && ended != nullptr && ended->end.ended < now) return {};
  return message;
}

std::vector<JobCore::Action> Saboteur::said(std::vector<JobCore::Action> actions) {
  if (bug_ == Bug::lost_fences) {
    std::vector<JobCore::Action> kept;
    for (const auto& action : actions) {
      if (!std::holds_alternative<JobCore::Fence>(action)) kept.push_back(action);
    }
    actions = kept;
  }
  for (auto& action : actions) {
    if (const auto* start = std::get_if<JobCore::StartWorkers>(&action)) {
      for (const auto& place : start->places) {
        if (place.rank < 0) spares_.insert(place.slot);
      }
    }
    if (auto* announce = std::get_if<JobCore::Announce>(&action)) change(*announce);
  }
  return actions;
}

void Saboteur::change(JobCore::Announce& announce) {
  auto& slots = announce.slots;
  if (bug_ == Bug::reused_number && last_round_ > 0) announce.round = last_round_;
  if (bug_ == Bug::dead_member && !down_.empty()) slots.front() = *down_.begin();
  if (bug_ == Bug::spare_twice && slots.size() > 1) {
    const auto is_spare = [&](Slot slot) { return spares_.contains(slot); };
    const auto spare = std::find_if(slots.begin(), slots.end(), is_spare);
    if (spare != slots.end()) (spare == slots.begin() ? slots.back() : slots.front()) = *spare;
  }
  if (bug_ == Bug::forgotten_member && last_round_ > 0 && slots.size() > 1) slots.pop_back();
  last_round_ = announce.round;
  for (const Slot slot : slots) {
    told_.resize(std::max(told_.size(), static_cast<std::size_t>(slot) + 1));
    told_[static_cast<std::size_t>(slot)] = announce.round;
  }
}

// The clock jumps after three seconds.
Duration Saboteur::clock_error(TimePoint now) const {
  if (bug_ != Bug::clock_back || now - kStart < std::chrono::seconds(3)) return {};
  return -std::chrono::seconds(500);
}

}  // namespace dlaunch::sim
