// What nodes say, and what the job orders them to do.

#include <signal.h>

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "launcher/lead/membership/node_membership.h"

namespace dlaunch {
namespace {

// The clock error of a host without an answered ping.
constexpr Duration kUnknownClock = std::chrono::seconds(1);

constexpr std::size_t kAnswerPart = 512 << 10;  // bytes in a message

}  // namespace

// -- From nodes

void NodeMembership::message(Link link, const NodeMessage& message) {
  const auto node = roster_.node_of(link);
  if (const auto* asks = std::get_if<NodeJoin>(&message)) {
    if (!node && !finished_) join(link, *asks);
  } else if (const auto* question = std::get_if<NodeAsks>(&message)) {
    if (!node) job_.on_asked(link, question->request);
  } else if (const auto* tested = std::get_if<NodeTested>(&message)) {
    judge(HostHealth::Tested{link, escaped(tested->why)});
  } else if (const auto* ended = std::get_if<NodeLoginEnded>(&message)) {
    if (node) job_.on_login_ended(*node, *ended);
  } else if (node && (roster_.begun() || link == kOwnLink)) {
    take(*node, message);
  }
}

void NodeMembership::take(int node, const NodeMessage& message) {
  std::visit(
      [&](const auto& what) {
        using Message = std::remove_cvref_t<decltype(what)>;
        if constexpr (kIsFromMonitor<Message>) {
          job_.on_monitor(node, message);
        } else if constexpr (kIsFromLeader<Message> || kIsFromStranger<Message>) {
          log_warn("host {} sent a message that only a leader sends, or an earlier one again",
                   name_of(node));
        } else if constexpr (std::is_constructible_v<JobCore::Event, Message>) {
          tell(node, what);
        } else {
          on(node, what);
        }
      },
      message);
}

void NodeMembership::on(int node, const NodeSignal& signal) {
  const bool of_a_pod = plan_.nodes.leader_returns && signal.number == SIGTERM;
  if (of_a_pod && job_.leaves(node)) return;
  if (plan_.nodes.signalled_by_all() && !is_news(node, signal.number)) return;
  if (!plan_.nodes.steps_signal_workers() || ends_the_job(signal.number)) {
    job_.feed(JobCore::Signal{signal.number});
  } else if (own() >= 0) {
    order(own(), NodeHandOn{signal.number});  // those of the steps have got it already
  }
}

bool NodeMembership::is_news(int node, int signal) {
  const int times = ++seen_[{node, signal}];
  if (times <= most_seen_[signal]) return false;
  most_seen_[signal] = times;
  return true;
}

// Replaces the node's slot by the job's; drops events with an unknown slot.
void NodeMembership::tell(int node, JobCore::Event event) {
  const bool known = std::visit(
      [&](auto& what) {
        if constexpr (requires { what.slot; }) what.slot = job_slot(node, what.slot);
        if constexpr (requires { what.slot; }) return what.slot >= 0;
        return true;
      },
      event);
  if (known) job_.feed(event);
}

Duration NodeMembership::clock_error(int node) const {
  if (node == own()) return Duration::zero();
  return effects_.clock_error(node_at(node).link).value_or(kUnknownClock);
}

void NodeMembership::on(int node, const NodeEnded& ended) {
  const Slot slot = job_slot(node, ended.slot);
  if (slot < 0) return;
  WorkerEnd end = ended.end;
  if (node != own()) {
    end.host = host_of(slot);
    end.ended = std::min(end.ended, effects_.now());
    end.started = std::min(end.started, end.ended);
    if (end.traceback) end.traceback->begun = std::min(end.traceback->begun, end.ended);
    end.clock_error = clock_error(node);
  }
  job_.on_ended(slot, std::move(end));
}

void NodeMembership::on(int node, const NodeStartFailed& failed) {
  const Slot slot = job_slot(node, failed.slot);
  if (slot < 0) return;
  SpawnError error = failed.error;
  if (node != own()) error.what = fmt::format("on host {}: {}", host_of(slot), error.what);
  job_.on_start_failed(slot, error);
  job_.feed(JobCore::SpawnFailed{slot});
}

// -- To nodes

void NodeMembership::order(int node, const NodeMessage& message) {
  if (is_here(node)) effects_.send(node_at(node).link, message);
}

// The own node comes last: a failure there stops the others.
void NodeMembership::order(const std::vector<NodeOrder>& orders) {
  for (const auto& [node, message] : orders) {
    if (node != own()) order(node, message);
  }
  for (const auto& [node, message] : orders) {
    if (node == own()) order(node, message);
  }
}

void NodeMembership::order_all(const NodeMessage& message) {
  for (const int node : others_here()) order(node, message);
  if (own() >= 0) order(own(), message);
}

void NodeMembership::start(const JobCore::StartWorkers& start, const JobCore& job) {
  std::vector<NodeAddresses> addresses;  // by node
  for (const auto& node : roster_.nodes()) {
    const auto remote = remotes_.find(node.link);
    addresses.push_back(remote == remotes_.end() ? own_addresses_ : remote->second.addresses);
    addresses.back().rack = node.rack;
  }
  order(orders(start, job, slots_, addresses));
}

void NodeMembership::answer(Link link, const std::string& text) {
  for (std::size_t at = 0; at < text.size(); at += kAnswerPart) {
    effects_.send(link, NodeAnswers{text.substr(at, kAnswerPart), at + kAnswerPart >= text.size()});
  }
  effects_.close(link);
}

void NodeMembership::give_input(int node, const std::string& bytes) {
  if (!finished_) order(node, NodeInput{bytes});
}

void NodeMembership::release(int node, const std::string& why, int exit_code) {
  if (!is_here(node)) return;
  released_.insert(node);
  order(node, NodeFinish{exit_code, why});
}

void NodeMembership::finish(int exit_code, const std::string& why) {
  finished_ = true;
  for (const int node : others_here()) order(node, NodeFinish{exit_code, why});
  for (const auto& [link, remote] : remotes_) {
    if (remote.waits) effects_.send(link, NodeFinish{exit_code, why});
  }
}

}  // namespace dlaunch
