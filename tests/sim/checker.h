// Checker: the rules for every run, checked after every event.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/agent_shell.h"
#include "tests/sim/worker.h"

namespace dlaunch::sim {

class Checker {
 public:
  Checker(Stage& stage, const AgentShell& shell) : stage_(stage), shell_(shell) {}

  void before(const JobCore::Event& event) { event_ = event; }
  void check(const JobCore::Action& action);
  void check(const AgentCore::Action& action);
  void after_all();
  // Call it when the timer is not due at once.
  void check_joins();
  void committed(const Worker& worker);
  void agreed(int round, std::uint64_t version);
  void exits(const Worker& worker);

  bool finished() const { return finish_.has_value(); }
  const std::optional<JobCore::Finish>& finish() const { return finish_; }
  // Events in the world that explain an end. frozen: longer than a job waits.
  bool signalled = false, spawn_failed = false, frozen = false, resized = false, grown = false;
  bool node_lost = false, leader_lost = false;
  TimePoint led_since{};          // by this leader
  TimePoint ordered{};            // the last Resize or Replace
  TimePoint timer_rang = kNever;  // due then, by the agent's clock

 private:
  void check_action(const JobCore::StartWorkers& start);
  void check_action(const JobCore::StopWorkers& stop);
  void check_action(const JobCore::HandOn&) {}
  void check_action(const JobCore::Fence& fence);
  void check_action(const JobCore::Announce& announce);
  void check_action(const JobCore::AwaitEnd& what);
  void check_action(const JobCore::Finish& finish);
  void check_member(const JobCore::Announce& announce, Slot slot);
  bool is_done_task(Slot slot) const;
  void check_end(const JobCore::Finish& finish);
  void check_success();
  void must(bool holds, const char* what) {
    if (!holds) stage_.fail(what);
  }

  Stage& stage_;
  const AgentShell& shell_;
  JobCore::Event event_;  // the job core's present event
  int announced_ = 0, fenced_ = 0, announcements_ = 0;
  int newest_round_ = 0;                     // the newest whose members have agreed on a state
  std::map<int, std::set<int>> late_steps_;  // committed in an older round
  std::vector<Slot> roster_;                 // of that round
  std::optional<JobCore::Finish> finish_;
};

}  // namespace dlaunch::sim
