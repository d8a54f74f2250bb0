// Scenario: all that a seed decides before the job starts: its size and limits, its kind of
// program, the speed of events, and the faults.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/job_core.h"

namespace dlaunch::sim {

enum class Program { linked, plain, mixed };

// When a fault strikes: at a time, or when some worker reaches a moment of its life.
enum class Moment {
  time,
  spawned,
  asked,        // it has sent Ready
  told,         // it knows its round
  entered,      // it joins the meeting
  met,          // all are there
  synced,       // has the state
  contributed,  // has given its part to a collective
  result,       // has the sum, and has not committed
  committed,    // but has not contributed again
  barrier,      // the last one
  leaving,      // has noticed that its round is over
  finished,     // is about to exit
};
inline constexpr int kMoments = 13;

enum class Harm {
  kill,
  kill_several,
  fail,      // exits with a code
  blame,     // exits and blames a lost peer
  end_well,  // exits with 0 too early
  stop,      // SIGSTOP for a while
  replace,   // a verdict that it hangs
  resize,
  drain,   // of a host
  signal,  // the user's
  jump,    // the clock, forward
  node,    // one is lost, and back after a while
  cut,     // some lose contact, with their processes, and are back after a while
  replay,  // an old Ready arrives again
  leader,  // it is lost, and another one takes over after a while
  // For the process that is being started:
  spawn_fails,
  never_runs,  // spawned, but its program cannot be executed
  mute,        // never asks for a round
  shielded,    // ignores SIGTERM
  frozen,      // even SIGKILL does not end it for a while
};

struct Fault {
  Harm harm = Harm::kill;
  Moment moment = Moment::time;
  Duration at{};   // moment == time: since the start; otherwise after the moment
  int nth = 0;     // so many workers pass that moment unharmed
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
  // The first leader is lost with its first decision, which it has not written down, or has.
  bool first_leader_is_lost = false, wrote_down = false;
};

// The start time of every run.
inline constexpr TimePoint kStart(std::chrono::seconds(1000));

Scenario scenario_of(std::uint64_t seed);
// The latest time for faults that wait for a moment.
inline constexpr Duration kFaultsEnd = std::chrono::minutes(2);

std::string to_string(Harm harm);
std::string to_string(const Scenario& scenario);

}  // namespace dlaunch::sim
