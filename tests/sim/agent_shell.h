// AgentShell replaces launcher/agent/job_leader.cc and the connections between the hosts: it runs
// the driver of the job and the hosts, with simulated effects.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "elastic/job_driver.h"
#include "launcher/lead/membership/job_slots.h"
#include "launcher/lead/membership/node_orders.h"
#include "tests/sim/host_shell.h"
#include "tests/sim/outside.h"
#include "tests/sim/saboteur.h"

namespace dlaunch::sim {

class AgentShell final : private JobDriver::Effects {
 public:
  using End = HostShell::End;
  AgentShell(const JobConfig& job, Duration grace, Outside& outside, Saboteur& saboteur);

  void start();
  // Without a leader, the event is dropped.
  void feed(const JobCore::Event& event);
  void on_ready(Slot slot, const Ready& ready) {
    host(node_of(slot)).on_ready(ready.worker, ready.left, ready.version);
  }
  void on_ended(Slot slot, End end) { host(node_of(slot)).on_ended(slots_.home(slot).slot, end); }
  void on_never_ran(Slot slot) { host(node_of(slot)).on_never_ran(slots_.home(slot).slot); }
  void on_timer();
  // The host is lost without a message, with all its processes.
  void on_node_lost(int node);
  // The connection to the leader is lost. Processes go on.
  void on_node_cut(int node);
  // A host that is cut off has tried to connect in vain.
  void on_attempt(int node);
  void on_node_back(int node);

  // When the leader is lost: at once, or before or after it writes down its next decision.
  enum class Loss { at_once, unwritten, written };
  void lose_leader(Loss how);
  bool leads() const { return leads_; }
  // Another leader takes over, with the written record and the hosts that it reaches.
  void take_over();

  // When the timer is due, by the agents' clock.
  TimePoint timer() const;
  const JobCore& job() const { return job_->core(); }
  // The unreaped worker in the slot, as far as the leader can know; 0: none.
  int worker_in(Slot slot) const { return reachable(slot) ? runs_in(slot) : 0; }
  // The unreaped worker in the slot; 0: none.
  int runs_in(Slot slot) const {
    const auto& home = slots_.home(slot);
    return hosts_[static_cast<std::size_t>(home.node)]->worker_in(home.slot);
  }
  bool is_cut(Slot slot) const { return cut_.contains(node_of(slot)); }
  bool has_node(int node) const { return !cut_.contains(node); }
  bool reachable(Slot slot) const { return members_.contains(node_of(slot)); }
  int slots() const { return JobCore::slots(config_); }

 private:
  TimePoint now() override { return outside_.clock(); }

  // -- Of the job
  bool writes_down() const override { return true; }
  void write_down(const JobRecord& record, std::function<void()> then) override;
  std::vector<JobCore::Action> decide(JobCore& core, const JobCore::Event& event) override;
  void perform(const JobCore::StartWorkers& start) override;
  void perform(const JobCore::StopWorkers& stop) override;
  void perform(const JobCore::HandOn& pass) override;
  void perform(const JobCore::Fence& fence) override;
  void perform(const JobCore::Announce& announce) override;
  void perform(const JobCore::AwaitEnd&) override {}
  void perform(const JobCore::Finish& how) override;

  // -- Of the hosts
  void hear(int node, const NodeMessage& message);
  void join(int node, const NodeJoin& join);
  void leave(int node);
  void welcome(int node);
  void tell(int node, JobCore::Event event);
  void order(int node, const NodeMessage& message);
  void order(const std::vector<NodeOrder>& orders);
  void order_all(const NodeMessage& message);
  void gather();
  JobCore::Resume resumed() const;

  int node_of(Slot slot) const { return slots_.home(slot).node; }
  int nodes() const { return static_cast<int>(hosts_.size()); }
  HostShell& host(int number) { return *hosts_[static_cast<std::size_t>(number)]; }
  void add_host(int number);

  Outside& outside_;
  Saboteur& saboteur_;
  Pump pump_;
  const JobConfig config_;
  const JobSlots slots_;
  const Duration grace_;
  std::optional<JobDriver> job_;
  JobRecord written_;  // round 0: nothing yet
  std::optional<Loss> doomed_;
  bool leads_ = true;
  bool begun_ = false;  // this leader has the hosts that it waited for
  int run_ = 1;
  std::vector<std::unique_ptr<HostShell>> hosts_;
  std::vector<std::unique_ptr<HostShell>> gone_;
  std::set<int> cut_;      // hosts without a connection
  std::set<int> members_;  // hosts that the leader has accepted
  std::map<int, NodeJoin> offers_;
  int last_worker_ = 0;
};

}  // namespace dlaunch::sim
