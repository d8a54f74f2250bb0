// The job's states and every move between them, as rows that read aloud. A static_assert proves
// that each pair of state and event either has rows or is listed as ignored; JobCore asserts that
// each of its moves is a row.
//
//   idle -> forming -> active -> ending -> ended
//              ^__________|   the next round
#pragma once

#include <array>
#include <compare>
#include <cstddef>

namespace dlaunch {

enum class JobState {
  idle,
  forming,  // a round has its number; not all of its members are there yet
  active,   // all are there
  ending,   // the last processes are being stopped
  ended,
};
enum class JobOn {
  start,    // go
  spawned,  // a process runs
  failed,   // a process failed, could not be started, or cannot be ended
  well,     // a process ended with code 0
  member,   // a worker wants to be in a round
  stop,     // the user's signal to end
  pass,     // the user's signal to hand on
  change,   // another size, or a worker to be replaced
  node,     // a node was lost, or is back
  clock,    // the deadline came
};
inline constexpr std::size_t kJobStates = 5;
inline constexpr std::size_t kJobEvents = 10;

struct JobMove {
  JobState from;
  JobOn on;
  JobState to;
  friend constexpr auto operator<=>(const JobMove&, const JobMove&) = default;
};

// One row for each state that an event may lead to.
inline constexpr auto kJobMoves = [] {
  using enum JobState;
  using On = JobOn;
  return std::array{
      JobMove{idle, On::start, forming},
      JobMove{idle, On::start, active},  // it goes on, and its members wait for the next round
      JobMove{idle, On::start, ending},  // no restart is left for a process lost with the leader
      JobMove{idle, On::start, ended},
      JobMove{idle, On::stop, ended},
      JobMove{idle, On::node, idle},  // some nodes are absent at the start

      JobMove{forming, On::spawned, forming},
      JobMove{forming, On::spawned, active},  // programs that do not meet through the launcher
      JobMove{forming, On::failed, forming},
      JobMove{forming, On::failed, active},  // a spare, the last one that the round waited for
      JobMove{forming, On::failed, ending},
      JobMove{forming, On::failed, ended},
      JobMove{forming, On::well, forming},
      JobMove{forming, On::well, active},  // it goes on without the finished one
      JobMove{forming, On::well, ended},
      JobMove{forming, On::well, ending},
      JobMove{forming, On::member, forming},
      JobMove{forming, On::member, active},
      JobMove{forming, On::member, ending},  // a peer has finished and cannot come back
      JobMove{forming, On::stop, ending},
      JobMove{forming, On::stop, ended},  // no process runs while the job waits for its next start
      JobMove{forming, On::pass, forming},
      JobMove{forming, On::change, forming},
      JobMove{forming, On::change, active},
      JobMove{forming, On::change, ending},
      JobMove{forming, On::node, forming},
      JobMove{forming, On::node, active},  // the others go on without it
      JobMove{forming, On::node, ending},
      JobMove{forming, On::node, ended},
      JobMove{forming, On::clock, forming},
      JobMove{forming, On::clock, active},
      JobMove{forming, On::clock, ending},
      JobMove{forming, On::clock, ended},

      JobMove{active, On::spawned, active},  // a spare, or a member of a larger round to come
      JobMove{active, On::failed, active},
      JobMove{active, On::failed, forming},
      JobMove{active, On::failed, ending},
      JobMove{active, On::failed, ended},
      JobMove{active, On::well, active},
      JobMove{active, On::well, ending},  // spares are still there
      JobMove{active, On::well, ended},
      JobMove{active, On::member, active},
      JobMove{active, On::member, forming},  // it has left its round
      JobMove{active, On::member, ending},   // and no restart is left for an early finisher
      JobMove{active, On::stop, ending},
      JobMove{active, On::pass, active},
      JobMove{active, On::change, active},
      JobMove{active, On::change, forming},
      JobMove{active, On::change, ending},  // it is to be replaced, and no restart is left
      JobMove{active, On::node, active},    // a spare was there, or no member
      JobMove{active, On::node, forming},
      JobMove{active, On::node, ending},
      JobMove{active, On::node, ended},
      JobMove{active, On::clock, active},
      JobMove{active, On::clock, forming},  // the next rank of a smaller size leaves
      JobMove{active, On::clock, ending},

      JobMove{ending, On::spawned, ending},  // its start was under way
      JobMove{ending, On::failed, ending},
      JobMove{ending, On::failed, ended},
      JobMove{ending, On::well, ending},
      JobMove{ending, On::well, ended},
      JobMove{ending, On::stop, ending},
      JobMove{ending, On::pass, ending},
      JobMove{ending, On::node, ending},
      JobMove{ending, On::node, ended},
  };
}();

struct JobPair {
  JobState state;
  JobOn on;
};

inline constexpr auto kJobIgnored = [] {
  using enum JobState;
  using On = JobOn;
  return std::array{
      JobPair{idle, On::spawned}, JobPair{idle, On::failed},   JobPair{idle, On::well},
      JobPair{idle, On::member},  JobPair{idle, On::pass},     JobPair{idle, On::change},
      JobPair{idle, On::clock},   JobPair{forming, On::start}, JobPair{active, On::start},
      JobPair{ending, On::start}, JobPair{ending, On::member}, JobPair{ending, On::change},
      JobPair{ending, On::clock}, JobPair{ended, On::start},   JobPair{ended, On::spawned},
      JobPair{ended, On::failed}, JobPair{ended, On::well},    JobPair{ended, On::member},
      JobPair{ended, On::stop},   JobPair{ended, On::pass},    JobPair{ended, On::change},
      JobPair{ended, On::node},   JobPair{ended, On::clock},
  };
}();

constexpr bool job_handles(JobState state, JobOn on) {
  for (const auto& move : kJobMoves) {
    if (move.from == state && move.on == on) return true;
  }
  return false;
}

constexpr bool job_may_move(const JobMove& move) {
  for (const auto& row : kJobMoves) {
    if (row == move) return true;
  }
  return false;
}

consteval bool each_job_pair_has_one_home() {
  for (std::size_t s = 0; s < kJobStates; ++s) {
    for (std::size_t e = 0; e < kJobEvents; ++e) {
      const auto state = static_cast<JobState>(s);
      const auto on = static_cast<JobOn>(e);
      int homes = job_handles(state, on) ? 1 : 0;
      for (const auto& pair : kJobIgnored) homes += pair.state == state && pair.on == on;
      if (homes != 1) return false;
    }
  }
  return true;
}
static_assert(each_job_pair_has_one_home(), "a pair of state and event is missing or twice there");

}  // namespace dlaunch
