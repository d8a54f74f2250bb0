// AgentShell replaces launcher/agent/job_leader.cc and the followers: it runs the drivers of the
// job and of each node, with simulated effects.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "elastic/job_driver.h"
#include "elastic/node_driver.h"
#include "rendezvous/worker_message.h"
#include "tests/sim/saboteur.h"

namespace dlaunch::sim {

// The agent's effects on the world, and the world's view of its decisions.
class Outside {
 public:
  virtual ~Outside() = default;
  virtual TimePoint clock() = 0;
  // False: it could not be spawned.
  virtual bool start(Slot slot, int worker, int rank, int round) = 0;
  virtual void signal(int worker, int number) = 0;
  // To a worker that has connected.
  virtual void send(int worker, const WorkerMessage& message) = 0;
  // It has ended, though the agent has not noticed yet.
  virtual bool has_ended(int worker) = 0;
  virtual void reap(int worker) = 0;
  // The leader is lost.
  virtual void leader_lost() = 0;
  virtual void sees(const JobCore::Event& event) = 0;
  virtual void sees(const JobCore::Action& action) = 0;
  virtual void sees(const AgentCore::Action& action) = 0;
};

class AgentShell final : private JobDriver::Effects, private NodeDriver::Effects {
 public:
  struct End {
    bool well = false;
    int blames = -1;  // the rank whose loss was the reason, as in DLAUNCH's error file; -1: none
  };
  AgentShell(const JobConfig& job, Duration grace, Outside& outside, Saboteur& saboteur);

  void start() { feed(JobCore::Start{}); }
  // Without a leader, the next one gets only the ends of processes, and drops all other events.
  void feed(const JobCore::Event& event);
  void on_ready(const Ready& ready);
  void on_ended(Slot slot, End end);
  void on_never_ran(Slot slot);
  void on_timer();
  // The node is lost without a message, with all its processes.
  void on_node_lost(int node);
  void on_node_back(int node);

  // When the leader is lost: at once, or before or after it writes down its next decision.
  enum class Loss { at_once, unwritten, written };
  void lose_leader(Loss how);
  bool leads() const { return leads_; }
  // Another leader takes over, with the written record and the living processes.
  void take_over();

  // When the timer is due, by the agent's clock.
  TimePoint timer() const;
  const JobCore& job() const { return job_->core(); }
  // The unreaped worker in the slot; 0: none.
  int worker_in(Slot slot) const { return at(slot).running ? at(slot).worker : 0; }
  bool has_node(int node) const { return !lost_.contains(node); }
  bool reachable(Slot slot) const { return !lost_.contains(node_of(slot)); }
  int slots() const { return static_cast<int>(places_.size()); }

 private:
  struct Place {
    int worker = 0;
    int rank = -1;
    bool running = false;
    TimePoint started{};
    JobCore::Found found;  // the facts for the next leader
  };

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
  void perform(const JobCore::Finish& how) override;

  // -- Of the node
  bool spawn(Slot slot, int rank, int round) override;
  void perform(const AgentCore::SendSignal& send) override;
  void tell(const JobCore::Event& event) override { feed(event); }
  void looks_on(const AgentCore::Action& action) override { outside_.sees(action); }

  int node_of(Slot slot) const {
    return nodes_of_.empty() ? 0 : nodes_of_[static_cast<std::size_t>(slot)];
  }
  NodeDriver& node(int number) { return *nodes_[static_cast<std::size_t>(number)]; }
  void add_node(std::size_t number);
  Place& at(Slot slot) { return places_[static_cast<std::size_t>(slot)]; }
  const Place& at(Slot slot) const { return places_[static_cast<std::size_t>(slot)]; }

  Outside& outside_;
  Saboteur& saboteur_;
  Pump pump_;
  const JobConfig config_;
  std::optional<JobDriver> job_;
  JobRecord written_;  // round 0: nothing yet
  std::optional<Loss> doomed_;
  bool leads_ = true;
  std::vector<JobCore::Event> unheard_;
  const Duration grace_;
  const std::vector<int> nodes_of_;                 // by slot
  std::vector<std::unique_ptr<NodeDriver>> nodes_;  // each knows the job's slots
  std::set<int> lost_;
  std::vector<Place> places_;  // by slot
  int last_worker_ = 0;
};

}  // namespace dlaunch::sim
