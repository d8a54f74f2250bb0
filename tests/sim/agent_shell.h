// AgentShell pumps JobCore and AgentCore exactly as launcher/agent.cc does, in the same order, with
// hands that are simulated. What changes there has to change here.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "elastic/agent_core.h"
#include "elastic/job_core.h"
#include "rendezvous/worker_message.h"
#include "tests/sim/saboteur.h"

namespace dlaunch::sim {

// What the agent does to the world, and the world's eyes on what it decides.
class Hands {
 public:
  virtual ~Hands() = default;
  virtual TimePoint clock() = 0;
  // False: it could not be spawned.
  virtual bool start(Slot slot, int worker, int rank, int round) = 0;
  virtual void signal(int worker, int number) = 0;
  // To a worker that has connected.
  virtual void send(int worker, const WorkerMessage& message) = 0;
  // It runs no more, though nobody has looked yet.
  virtual bool has_ended(int worker) = 0;
  virtual void reap(int worker) = 0;
  virtual void sees(const JobCore::Event& event) = 0;
  virtual void sees(const JobCore::Action& action) = 0;
  virtual void sees(const AgentCore::Action& action) = 0;
};

class AgentShell {
 public:
  struct End {
    bool well = false;
    int blames = -1;  // the rank whose loss was the reason, as DLAUNCH's error file tells; -1: none
  };
  AgentShell(const JobConfig& job, Duration grace, Hands& hands, Saboteur& saboteur);

  void start() { feed(JobCore::Start{}); }
  void on_ready(const Ready& ready);
  void on_ended(Slot slot, End end);
  void on_never_ran(Slot slot) { spawn_failed(slot); }
  void on_timer();
  using Event = std::variant<JobCore::Event, AgentCore::Event>;
  void feed(Event event);

  // When the timer is due, by the agent's clock.
  TimePoint timer() const;
  const JobCore& job() const { return job_; }
  // The worker that has the slot and was not reaped; 0: none.
  int worker_in(Slot slot) const { return at(slot).running ? at(slot).worker : 0; }
  int slots() const { return static_cast<int>(places_.size()); }

 private:
  struct Place {
    int worker = 0;
    int rank = -1;
    bool running = false;
    TimePoint started{};
  };

  void command(const AgentCore::Event& event);
  template <class Actions>
  void perform_all(const Actions& actions);
  void perform(const JobCore::StartWorkers& start);
  void perform(const JobCore::StopWorkers& stop);
  void perform(const JobCore::HandOn& pass);
  void perform(const JobCore::Fence& fence);
  void perform(const JobCore::Announce& announce);
  void perform(const JobCore::Finish&) {}
  void perform(const AgentCore::Spawn& spawn);
  void perform(const AgentCore::SendSignal& send);
  void perform(const AgentCore::NotStarted& what);
  void perform(const AgentCore::GiveUp& what);
  void spawn_failed(Slot slot);
  Place& at(Slot slot) { return places_[static_cast<std::size_t>(slot)]; }
  const Place& at(Slot slot) const { return places_[static_cast<std::size_t>(slot)]; }

  Hands& hands_;
  Saboteur& saboteur_;
  JobCore job_;
  AgentCore agent_;
  std::vector<Place> places_;  // by slot
  std::map<Slot, JobCore::Place> to_start_;
  int round_ = 0;  // that processes are started for
  int last_worker_ = 0;
  std::deque<Event> events_;
  bool pumping_ = false;
};

}  // namespace dlaunch::sim
