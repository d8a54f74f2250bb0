// World: one run of one job, from its start to its end, in virtual time. The same scenario and seed
// give the same run.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/sim/agent_shell.h"
#include "tests/sim/checker.h"
#include "tests/sim/saboteur.h"
#include "tests/sim/scenario.h"
#include "tests/sim/worker.h"

namespace dlaunch::sim {

struct Outcome {
  std::string wrong;  // the broken rule; empty: none
  JobEnding end = JobEnding::succeeded;
  int rounds = 0, restarts = 0, happenings = 0;
  std::uint64_t hash = 0;  // over all events
  std::set<JobMove> moves;
};

class World final : private Outside, private Workers::Listener {
 public:
  World(const Scenario& scenario, std::uint64_t seed, Bug bug, bool traced);
  Outcome run();
  const std::vector<std::string>& transcript() const { return stage_.trace.lines(); }

 private:
  // -- Outside
  TimePoint clock() override;
  bool start(Slot slot, int worker, int rank, int round) override;
  void signal(int worker, int number) override;
  void send(int worker, const WorkerMessage& message) override;
  bool has_ended(int worker) override { return stage_.worker(worker).life == Worker::dead; }
  void reap(int worker) override;
  void leader_lost() override;
  void sees(const JobCore::Event& event) override;
  void sees(const JobCore::Action& action) override;
  void sees(const AgentCore::Action& action) override;
  void moved(const JobMove& move) override { outcome_.moves.insert(move); }

  // -- Workers::Listener
  void reached(const Worker& worker, Moment moment) override;
  void committed(const Worker& worker) override { checker_.committed(worker); }
  void agreed(int round, std::uint64_t version) override { checker_.agreed(round, version); }
  void exits(Worker& worker, AgentShell::End end) override;

  bool goes_on() const;
  void turn();
  TimePoint timer();
  void happen(const Happening& what);
  void take_signal(Worker& worker);
  void strike(int fault, int worker);
  void harm(const Fault& fault, Worker& worker);
  void harm_job(const Fault& fault);
  void forget_workers(int node);
  void harm_new(Worker& worker);
  void drain(int number);
  void lose_node(int node, Duration lasts);
  void cut_off(int nodes, Duration lasts);
  void host_gave_up(int node) override;
  void attempt(int node);
  void resume(Worker& worker);
  Worker* anybody();
  int node_of(const Worker& worker) const {
    const auto& nodes = stage_.scenario.job.nodes;
    return nodes.empty() ? 0 : nodes[static_cast<std::size_t>(worker.slot)];
  }

  Stage stage_;
  Saboteur saboteur_;
  AgentShell shell_;
  Checker checker_;
  Workers workers_;
  std::vector<Fault> faults_;
  std::vector<bool> struck_;
  TimePoint last_harm_ = kStart;
  Duration leaderless_{};  // the next time without a leader
  Duration jumped_{};      // the agent's clock, forward
  Outcome outcome_;
};

}  // namespace dlaunch::sim
