// A NodeMembership whose links, clock and job only record its actions.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "launcher/lead/membership/node_membership.h"
#include "tests/unit/start.h"

namespace dlaunch {

// Of a job on so many hosts, led by host a, with two workers on each.
inline Plan membership_plan(int nodes) {
  Plan plan;
  plan.host = "a";
  plan.job_id = "j";
  plan.nproc = 2;
  plan.nodes.min = plan.nodes.max = nodes;
  return plan;
}

class MembershipWorld final : private NodeMembership::Effects, private NodeMembership::Job {
 public:
  using Link = NodeMembership::Link;
  explicit MembershipWorld(Plan its_plan, std::optional<JobJournal> was = {})
      : plan(std::move(its_plan)), membership(plan, std::move(was), "4f", *this, *this) {
    membership.set_own_addresses({{"10.0.0.1", 29500}, {}});
    membership.gather();
  }

  // -- What hosts do
  NodeJoin request_of(const std::string& host) const {
    return {.host = host,
            .nproc = 2,
            .job = what_must_agree(plan),
            .build = wire_fingerprint(),
            .master_addr = "10.0.0." + host};
  }
  void comes(Link link, const NodeJoin& request) {
    open.insert(link);
    membership.opened(link, "10.0.0." + request.host);
    membership.message(link, request);
  }
  void comes(Link link, const std::string& host) { comes(link, request_of(host)); }
  void goes(Link link) { close(link); }
  // Lets time pass. The membership acts when it wants to.
  void pass(Duration time) {
    const TimePoint until = clock + time;
    while (membership.deadline() && *membership.deadline() <= until) {
      clock = std::max(clock, *membership.deadline());
      membership.on_clock();
    }
    clock = until;
  }

  // -- What has happened
  // The last message of that kind on that link, forgotten then.
  template <class Message>
  std::optional<Message> got(Link link) {
    auto& all = sent[link];
    for (auto message = all.rbegin(); message != all.rend(); ++message) {
      if (const auto* is = std::get_if<Message>(&*message)) {
        const Message found = *is;
        all.clear();
        return found;
      }
    }
    return std::nullopt;
  }
  template <class Event>
  std::optional<Event> last_event() const {
    if (events.empty() || !std::holds_alternative<Event>(events.back())) return std::nullopt;
    return std::get<Event>(events.back());
  }
  std::string last_warning() const { return warnings.empty() ? "" : warnings.back(); }

  const Plan plan;
  TimePoint clock = kStart;
  std::set<Link> open, silent, watched;
  std::map<Link, std::vector<NodeMessage>> sent;
  std::vector<Link> order;  // of all that was sent
  std::vector<std::string> warnings;
  std::vector<JobCore::Event> events;
  // What the job learns, a line each: "begin", "lost 1 b".
  std::vector<std::string> news;
  std::vector<std::string> logins;  // what it learns of logins by hosts
  std::vector<WorkerEnd> ends;
  std::vector<std::pair<Link, std::string>> asked;
  std::optional<Duration> clock_error_now;
  int gone_login = -1;
  bool may_leave = false;
  NodeMembership membership;

 private:
  // -- Effects
  TimePoint now() override { return clock; }
  void send(Link link, const NodeMessage& message) override {
    sent[link].push_back(message);
    order.push_back(link);
  }
  void close(Link link) override {
    if (open.erase(link) > 0) membership.closed(link);
  }
  bool is_heard(Link link) override { return open.contains(link) && !silent.contains(link); }
  void watch_clock(Link link) override { watched.insert(link); }
  std::optional<Duration> clock_error(Link) override { return clock_error_now; }
  void say(LogLevel level, const std::string& words) override {
    if (level == LogLevel::warn) warnings.push_back(words);
  }

  // -- Job
  void begin() override { news.emplace_back("begin"); }
  void give_up(const std::string& why) override { news.push_back("give up: " + why); }
  void feed(const JobCore::Event& event) override { events.push_back(event); }
  void on_lost(int node, const std::string& host) override {
    news.push_back(fmt::format("lost {} {}", node, host));
  }
  void on_back(int node, const std::string& host) override {
    news.push_back(fmt::format("back {} {}", node, host));
  }
  void on_left(int node) override { news.push_back(fmt::format("left {}", node)); }
  bool leaves(int node) override {
    news.push_back(fmt::format("leaves {}", node));
    return may_leave;
  }
  void on_ended(Slot slot, WorkerEnd end) override {
    news.push_back(fmt::format("ended {}", slot));
    ends.push_back(std::move(end));
  }
  void on_start_failed(Slot slot, const SpawnError& error) override {
    news.push_back(fmt::format("not started {}: {}", slot, error.what));
  }
  bool expects(int login) override { return login != gone_login; }
  void on_linked(int node, bool here) override {
    logins.push_back(fmt::format("{} {}", here ? "linked" : "unlinked", node));
  }
  void on_login_ended(int, const NodeLoginEnded& ended) override {
    logins.push_back(fmt::format("login {} ended: {}", ended.login, ended.why));
  }
  void on_input_wanted(int node, bool wants) override {
    if (wants) news.push_back(fmt::format("input {}", node));
  }
  void on_asked(Link link, const std::string& request) override {
    asked.emplace_back(link, request);
  }
  void on_monitor(int node, const NodeMessage&) override {
    news.push_back(fmt::format("monitor {}", node));
  }
};

}  // namespace dlaunch
