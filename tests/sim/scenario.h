// Scenario: all that a seed decides before the job starts: its size and limits, what kind of
// program it runs, how fast things go, and what goes wrong.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/job_core.h"

namespace dlaunch::sim {

enum class Program { linked, plain, mixed };

// Where a fault strikes: at a time, or when some worker comes to a point of its life.
enum class Moment {
  time,
  spawned,
  asked,        // it has said Ready
  told,         // it knows its round
  entered,      // it meets the others
  met,          // all are there
  synced,       // has the state
  contributed,  // has given its part to a collective
  result,       // has the sum, and has not committed
  committed,    // has not contributed again
  barrier,      // the last one
  leaving,      // has noticed that its round is over
  finished,     // is about to exit
};
inline constexpr int kMoments = 13;

enum class Harm {
  kill,
  kill_several,
  fail,      // exits with a code
  blame,     // exits because a peer was lost, it says
  end_well,  // exits with 0 before its time
  stop,      // SIGSTOP for a while
  replace,   // it was judged to hang
  resize,
  signal,  // the user's
  jump,    // the clock, forward
  node,    // one is lost, and back after a while
  cut,     // some are cut off together with what runs there, and back after a while
  replay,  // an old Ready comes once more
  leader,  // is lost, and another one takes over after a while
  // Of the process that is being started:
  spawn_fails,
  never_runs,  // spawned, but its program cannot be executed
  mute,        // never asks for a round
  shielded,    // ignores SIGTERM
  frozen,      // not even SIGKILL ends it, for a while
};

struct Fault {
  Harm harm = Harm::kill;
  Moment moment = Moment::time;
  Duration at{};   // moment == time: since the start; otherwise after the moment
  int nth = 0;     // so many workers come to that moment unharmed
  int number = 0;  // how many, how large, which signal
  Duration lasts{};
};

// The longest delays.
struct Pace {
  Duration wire{};     // of a message
  Duration boot{};     // of a process, until it asks for its round
  Duration compute{};  // of a step
  Duration notice{};   // until the end of a process is seen
};

struct Scenario {
  JobConfig job;
  int max_restarts = 0;
  Duration grace{};
  Program program = Program::linked;
  int steps = 1;
  Pace pace;
  int gives_up = 0;  // percent of the losses after which a worker exits instead of going on
  std::vector<Fault> faults;
};

// Every run starts at the same time.
inline constexpr TimePoint kStart(std::chrono::seconds(1000));

Scenario scenario_of(std::uint64_t seed);
// Faults that wait for a moment strike no later than this.
inline constexpr Duration kFaultsEnd = std::chrono::minutes(2);

std::string to_string(Harm harm);
std::string to_string(const Scenario& scenario);

}  // namespace dlaunch::sim
