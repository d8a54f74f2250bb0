// Outside: the effects of dlaunch's decisions on the simulated world, and the world's view of them.
#pragma once

#include "elastic/agent_core.h"
#include "elastic/job_core.h"
#include "rendezvous/worker_message.h"

namespace dlaunch::sim {

class Outside {
 public:
  virtual ~Outside() = default;
  virtual TimePoint clock() = 0;
  // False: it could not be spawned.
  virtual bool start(Slot slot, int worker, int rank, int round) = 0;
  virtual void signal(int worker, int number) = 0;
  // To a worker that has connected.
  virtual void send(int worker, const WorkerMessage& message) = 0;
  // It has ended, though its host has not noticed yet.
  virtual bool has_ended(int worker) = 0;
  virtual void reap(int worker) = 0;
  // That host's dlaunch has given up: all its processes are gone.
  virtual void host_gave_up(int node) = 0;
  virtual void leader_lost() = 0;
  virtual void sees(const JobCore::Event& event) = 0;
  virtual void sees(const JobCore::Action& action) = 0;
  virtual void sees(const AgentCore::Action& action) = 0;
  virtual void moved(const JobMove& move) = 0;  // also where the event was ignored
};

}  // namespace dlaunch::sim
