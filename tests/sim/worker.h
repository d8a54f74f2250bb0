// Workers: the processes of the simulated world, as small state machines. A linked one behaves like
// ring/api.cc and a training program around it:
//
//   booting -> waiting -> told -> meeting -> computing <-> contributing -> committing -> ...
//                 ^__________ leaving <____________|  its round is over
//
// The first collective of a round gives the newest state to all; each later one is a step, after
// which the new state is committed; the last is a barrier, after which the worker exits. A plain
// one runs for a while.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/agent_shell.h"
#include "tests/sim/random.h"
#include "tests/sim/round_book.h"
#include "tests/sim/scenario.h"
#include "tests/sim/timeline.h"
#include "tests/sim/trace.h"

namespace dlaunch::sim {

enum class Phase {
  booting,
  plain,    // runs a program that is not linked
  waiting,  // for its round
  told,
  meeting,
  computing,
  contributing,
  committing,
  leaving,
  exiting,
};

// One process.
struct Worker {
  int number = 0;
  Slot slot = 0;
  bool linked = false, mute = false, shielded = false, frozen = false, never_runs = false;
  enum { running, dead, reaped } life = running;
  AgentShell::End end;
  bool finished = false;     // it has reached the end of its program
  bool cut_off = false;      // from the leader
  bool end_unknown = false;  // its leader may never have heard of it
  bool stopped = false;
  std::vector<Happening> held;  // events held back while it is stopped
  std::optional<TimePoint> told_to_stop;
  Duration frozen_for{};  // after SIGKILL
  // The agent's knowledge.
  bool connected = false, asks = false;
  TimePoint started{}, asked{}, ended{};  // the last time
  std::vector<int> heard;                 // `left` of each Ready
  TimePoint to_agent{}, to_worker{};      // arrival of the last message

  Phase phase = Phase::booting;
  int turn = 0;
  int round = 0, rank = -1, size = 0;
  int fence = 0, lost = -1;
  bool over = false, linked_up = false, synced = false;
  std::optional<Happening> notice;
  int collective = 0;
  std::uint64_t version = 0, state = 0;
  std::uint64_t next_version = 0, next_state = 0;  // not committed yet
};

// The data that all parts of the world share.
struct Stage {
  Stage(const Scenario& what, std::uint64_t seed, bool traced)
      : scenario(what), random(seed), trace(traced, kStart) {}
  void fail(std::string what) {
    if (wrong.empty()) wrong = std::move(what);
  }
  Worker& worker(int number) { return workers[static_cast<std::size_t>(number) - 1]; }
  const Worker& worker(int number) const { return workers[static_cast<std::size_t>(number) - 1]; }

  const Scenario& scenario;
  TimePoint now = kStart;
  Random random;
  Timeline timeline;
  Trace trace;
  std::deque<Worker> workers;
  std::string wrong;         // the first broken rule
  bool ended_early = false;  // some process ended well before its time
};

class Workers {
 public:
  // Reports their events to the world.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void reached(const Worker& worker, Moment moment) = 0;
    virtual void committed(const Worker& worker) = 0;
    virtual void agreed(int round, std::uint64_t version) = 0;  // on its state
    virtual void exits(Worker& worker, AgentShell::End end) = 0;
  };
  Workers(Stage& stage, Listener& listener) : stage_(stage), listener_(listener) {}

  void boot(Worker& worker);
  void take(Worker& worker, const Happening& what);
  // Its peers see the ends of its links.
  void cut_links(Worker& worker);
  // The workers without contact and the others see the ends of the links between them.
  void part();

 private:
  void after(Worker& worker, Duration most);
  void tell(int worker, Happening::Kind kind, int a, int b);
  void step(Worker& worker);
  void ask(Worker& worker);
  void take_notice(Worker& worker);
  void enter(Worker& worker);
  void compute(Worker& worker);
  void contribute(Worker& worker);
  void take_sum(Worker& worker);
  void commit(Worker& worker);
  void lose_round(Worker& worker, int lost);
  void leave(Worker& worker);
  int step_of(const Worker& worker) const;

  Stage& stage_;
  Listener& listener_;
  RoundBook book_;
};

// The final state of an undisturbed run of so many steps.
std::uint64_t final_state(int steps);

}  // namespace dlaunch::sim
