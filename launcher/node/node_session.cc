#include "launcher/node/node_session.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/text.h"
#include "base/units.h"

namespace dlaunch {
namespace {

// Reports that every leader must get: the session keeps them for the next one.
bool is_report(const NodeMessage& message) {
  return std::visit(
      [](const auto& what) {
        using T = std::remove_cvref_t<decltype(what)>;
        return std::is_same_v<T, NodeEnded> || std::is_same_v<T, NodeStartFailed> ||
               std::is_same_v<T, NodeNotStarted> || std::is_same_v<T, NodeReplace>;
      },
      message);
}

}  // namespace

NodeSession::NodeSession(TimePoint now, const Config& config)
    : config_(config), search_(config.search, now), now_(now) {}

std::vector<NodeSession::Action> NodeSession::step(TimePoint now, const Event& event) {
  now_ = now;
  actions_.clear();
  if (!ended_) std::visit([this](const auto& what) { on(what); }, event);
  return std::move(actions_);
}

void NodeSession::end(int exit_code) {
  ended_ = true;
  act(End{exit_code});
}

// -- The connection

void NodeSession::on(const Follows& event) {
  leads_ = event.ours;
  if (joined_) lost(event.leader + ": another one leads now");
  open_ = false;
  if (config_.search.elects && !leads_) note_ = event.note;
}

void NodeSession::on(const Opened& event) {
  address_ = event.local_address;
  open_ = true;
  join();
}

// Offers workers of an earlier time only if the leader may know of them.
void NodeSession::join() {
  const bool alone = clearing_ || !goes_on();
  if (!open_ || joined_ || (alone && !processes_.empty())) return;
  clearing_ = false;
  NodeJoin asks = config_.join;
  asks.master_addr = address_;
  if (goes_on()) {
    if (asks.number < 0) asks.number = number_;
    asks.run = run_;
    for (const auto& [slot, process] : found_) asks.found.push_back(process);
  }
  act(Send{asks});
}

// The leader does not know this host's workers: kills them, and joins as a fresh host.
void NodeSession::clear() {
  clearing_ = true;
  // There was nothing left to clear: the leader has forgotten that run.
  if (!config_.search.elects && found_.empty() && processes_.empty()) run_.clear();
  found_.clear();
  unsent_.clear();
  if (!processes_.empty()) act(Warn{"the job went on without this host; ending its workers"});
  act(KillWorkers{});
  join();
}

void NodeSession::lost(const std::string& why) {
  open_ = false;
  if (std::exchange(testing_, false)) act(StopTest{});
  tested_ = false;
  const bool was_in = std::exchange(joined_, false);
  if (!recorded_) run_.clear();
  search_.lost(now_, goes_on());
  if (!was_in) return;
  std::string what = "lost the leading dlaunch at " + why;
  if (config_.search.elects) return act(Warn{what});
  if (goes_on()) {
    return act(
        Warn{fmt::format("{}; this host's workers stay for {} (--join-timeout), for the "
                         "case that it is started again",
                         what, format_duration(config_.search.join_timeout))});
  }
  act(Warn{what + "; ending this host's workers"});
  act(KillWorkers{});
}

void NodeSession::on(const LeaderSearch::Failure& failure) {
  if (open_) return;
  switch (search_.failed(now_, failure, goes_on())) {
    case LeaderSearch::Next::wait:
      return;
    case LeaderSearch::Next::warn:
      return act(Warn{fmt::format("waiting for the leading dlaunch at {}{}", failure.why, note_)});
    case LeaderSearch::Next::not_restarted:
      act(
          Fail{fmt::format("the leading dlaunch at {}: it was not started again within {} "
                           "(--join-timeout); ending this host's workers",
                           failure.why, format_duration(config_.search.join_timeout))});
      act(KillDescendants{});
      break;
    case LeaderSearch::Next::cannot_join:
      std::string key;
      if (failure.final && !config_.key_file.empty()) {
        key = "; its hosts have to share " + config_.key_file + ", or a --secret-file";
      }
      act(Fail{fmt::format("cannot join the job at {}{}{}", failure.why, note_, key)});
  }
  end(kExitRendezvous);
}

// -- Messages from the leader

void NodeSession::on(const Heard& event) {
  const NodeMessage& message = event.what;
  if (const auto* refused = std::get_if<NodeRefused>(&message)) {
    act(Fail{"the leading dlaunch refused this host: " + escaped(refused->why)});
    return end(kExitRendezvous);
  }
  if (const auto* finish = std::get_if<NodeFinish>(&message)) return finished(*finish);
  if (const auto* welcome = std::get_if<NodeWelcome>(&message)) return welcomed(*welcome);
  if (std::holds_alternative<NodeClear>(message)) return clear();
  if (std::holds_alternative<NodeTest>(message)) {
    tested_ = true;
    if (!joined_ && !std::exchange(testing_, true)) act(Test{});
    return;
  }
  if (!joined_) return;
  note(message);
  act(Order{message});
}

void NodeSession::welcomed(const NodeWelcome& welcome) {
  joined_ = true;
  const bool new_run = run_.empty() || welcome.run != run_;
  if (welcome.run != run_) recorded_ = tested_;
  run_ = welcome.run;
  number_ = welcome.number;
  slots_ = std::max(slots_, welcome.slots);
  act(Joined{welcome, new_run});
  for (const NodeMessage& message : std::exchange(unsent_, {})) report(message);
  for (const auto& [slot, stuck] : stuck_) act(Send{stuck});
  // A worker that has asked for a round since we asked to join was not among the workers that we
  // offered.
  for (const auto& [slot, process] : found_) {
    if (process.ready) act(Send{NodeReady{slot, process.in_round, process.version, {}}});
  }
}

void NodeSession::finished(const NodeFinish& finish) {
  act(Finished{});
  if (!finish.why.empty() && !config_.leader_informs && !leads_) act(Fail{escaped(finish.why)});
  if (!leads_) return end(finish.exit_code);
  leave_with_ = finish.exit_code;
  act(Disconnect{});
}

void NodeSession::on(const Tested& event) {
  if (!std::exchange(testing_, false)) return;  // the leader that asked is lost
  act(Send{NodeTested{event.why}});
  const bool known = std::exchange(unhealthy_, event.why) == event.why;
  if (config_.started_by_leader || known || event.why.empty()) return;
  act(Warn{fmt::format(
      "this host failed its health check and gets no workers: {}; dlaunch tests it again later",
      event.why)});
}

// Notes the orders that the next leader must know.
void NodeSession::note(const NodeMessage& message) {
  if (const auto* start = std::get_if<NodeStart>(&message)) {
    recorded_ = true;
    for (const auto& place : start->places) {
      found_[place.slot] = {.slot = place.slot, .round = start->round};
      if (place.slot >= 0 && place.slot < slots_) processes_.insert(place.slot);
    }
  } else if (const auto* announce = std::get_if<NodeAnnounce>(&message)) {
    for (const auto& place : announce->places) {
      NodeFound& process = found(place.slot);
      process.in_round = process.round = announce->round;
      process.ready = false;
    }
  }
}

// -- Messages from the Node

void NodeSession::on(const Says& event) {
  const NodeMessage& message = event.what;
  forget_process(message);
  if (is_report(message)) {
    report(message);
    if (std::holds_alternative<NodeEnded>(message)) act(EndLeftovers{});
    return join();
  }
  if (const auto* ready = std::get_if<NodeReady>(&message)) {
    if (clearing_) return;
    NodeFound& process = found(ready->slot);
    process.linked = true;
    // A late message about a round before the last one is no wish for the next.
    if (ready->left == process.in_round) process.ready = true, process.version = ready->version;
  } else if (const auto* progress = std::get_if<NodeProgress>(&message)) {
    if (clearing_) return;
    found(progress->slot).version = progress->version;
  } else if (const auto* stuck = std::get_if<NodeStuck>(&message)) {
    stuck_[stuck->slot] = *stuck;
  }
  if (joined_) act(Send{message});
}

// Each ordered start ends in one of these.
void NodeSession::forget_process(const NodeMessage& message) {
  const auto forget = [this](Slot slot) {
    processes_.erase(slot);
    stuck_.erase(slot);
  };
  if (const auto* ended = std::get_if<NodeEnded>(&message)) forget(ended->slot);
  if (const auto* failed = std::get_if<NodeStartFailed>(&message)) forget(failed->slot);
  if (const auto* never = std::get_if<NodeNotStarted>(&message)) forget(never->slot);
}

NodeFound& NodeSession::found(Slot slot) {
  NodeFound& process = found_[slot];
  process.slot = slot;
  return process;
}

// Sends it now, or later to the next leader.
void NodeSession::report(const NodeMessage& message) {
  if (!joined_) return keep_for_next_leader(message);
  if (const auto* ended = std::get_if<NodeEnded>(&message)) {
    const bool failed = has_failed(ended->end);
    failed ? void(found_.erase(ended->slot)) : void(found(ended->slot).done = true);
  } else if (const auto* failed = std::get_if<NodeStartFailed>(&message)) {
    found_.erase(failed->slot);
  } else if (const auto* not_started = std::get_if<NodeNotStarted>(&message)) {
    found_.erase(not_started->slot);
  }
  act(Send{message});
}

// An ended worker stays in the list for a leader that does not know of its end yet; it waits for
// no round.
void NodeSession::keep_for_next_leader(const NodeMessage& message) {
  if (!goes_on() || clearing_) return;
  if (const auto* ended = std::get_if<NodeEnded>(&message)) found(ended->slot).ready = false;
  unsent_.push_back(message);
}

void NodeSession::on(const WantsInput& event) {
  if (joined_) act(Send{NodeInputWanted{event.wants}});
}

// -- What ends this host's part

// The leader gets the signal for the whole job; we act at once if alone, or if the user insists.
void NodeSession::on(const Signal& event) {
  const bool ends = ends_the_job(event.number);
  if (config_.steps_get_signals && !ends) return;
  if (ends && event.number == stop_signal_ && now_ - stopped_at_ < kSameWish) return;
  const bool again = ends && std::exchange(stop_signal_, event.number) != 0;
  if (ends) stopped_at_ = now_;
  if (joined_ && !again) return act(Send{NodeSignal{event.number}});
  if (!ends) return;
  act(KillDescendants{});
  end(128 + event.number);
}

void NodeSession::on(const TimedOut&) {
  if (joined_) return;  // the leader handles it
  std::string what = "not all of its hosts are there";
  if (!open_) what = "nobody leads it";
  if (!open_ && !config_.search.elects) what += " at " + config_.endpoint;
  act(Fail{"the job's --timeout passed: " + what});
  end(kExitTimeout);
}

void NodeSession::on(const StarterGone&) {
  if (!processes_.empty()) {
    act(Warn{"lost the dlaunch that started this one; ending this host's workers"});
  }
  act(KillDescendants{});
  end(kExitRendezvous);
}

void NodeSession::on(const CampaignGone&) {
  if (leave_with_) return end(*leave_with_);
  act(Fail{
      "lost the process that takes part in the election of the job's leader; ending this host's "
      "workers"});
  act(KillDescendants{});
  end(kExitInternal);
}

}  // namespace dlaunch
