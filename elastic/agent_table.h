// The agent's states and every move between them, as rows that read aloud. A static_assert proves
// that each pair of state and event either has rows or is listed as ignored; AgentCore asserts that
// each move it makes is a row.
//
//   idle -> starting -> running -> draining -> ended
//              ^____________________|   a restart: the next round
#pragma once

#include <array>
#include <compare>
#include <cstddef>

namespace dlaunch {

enum class AgentState { idle, starting, running, draining, ended };
enum class AgentOn {
  start,         // go
  spawned,       // the worker asked for runs
  spawn_failed,  // it could not be started, or never got as far as its program
  exited_well,   // a worker ended with code 0
  failed,        // a worker ended otherwise
  stop,          // the user's signal to end
  pass,          // the user's signal to hand on
  clock,         // the deadline came
};
inline constexpr std::size_t kAgentStates = 5;
inline constexpr std::size_t kAgentEvents = 8;

struct AgentMove {
  AgentState from;
  AgentOn on;
  AgentState to;
  friend constexpr auto operator<=>(const AgentMove&, const AgentMove&) = default;
};

// One row for each state an event may lead to.
inline constexpr auto kAgentMoves = [] {
  using enum AgentState;
  using On = AgentOn;
  return std::array{
      AgentMove{idle, On::start, starting},
      AgentMove{idle, On::stop, ended},

      AgentMove{starting, On::spawned, starting},
      AgentMove{starting, On::spawned, running},
      AgentMove{starting, On::spawn_failed, draining},
      AgentMove{starting, On::spawn_failed, ended},
      AgentMove{starting, On::exited_well, starting},
      AgentMove{starting, On::failed, draining},
      AgentMove{starting, On::stop, draining},
      AgentMove{starting, On::pass, starting},
      AgentMove{starting, On::clock, starting},  // a timer that was set for the round before
      AgentMove{starting, On::clock, draining},

      AgentMove{running, On::spawn_failed, draining},
      AgentMove{running, On::spawn_failed, ended},
      AgentMove{running, On::exited_well, running},
      AgentMove{running, On::exited_well, ended},
      AgentMove{running, On::failed, draining},
      AgentMove{running, On::failed, starting},  // the last worker, and a restart is left
      AgentMove{running, On::failed, ended},
      AgentMove{running, On::stop, draining},
      AgentMove{running, On::pass, running},
      AgentMove{running, On::clock, running},
      AgentMove{running, On::clock, draining},

      AgentMove{draining, On::spawned, draining},  // asked for before the drain began
      AgentMove{draining, On::spawn_failed, draining},
      AgentMove{draining, On::spawn_failed, ended},
      AgentMove{draining, On::exited_well, draining},
      AgentMove{draining, On::exited_well, starting},
      AgentMove{draining, On::exited_well, ended},
      AgentMove{draining, On::failed, draining},
      AgentMove{draining, On::failed, starting},
      AgentMove{draining, On::failed, ended},
      AgentMove{draining, On::stop, draining},
      AgentMove{draining, On::pass, draining},
      AgentMove{draining, On::clock, draining},
      AgentMove{draining, On::clock, ended},  // what SIGKILL did not end is given up
  };
}();

struct AgentPair {
  AgentState state;
  AgentOn on;
};

inline constexpr auto kAgentIgnored = [] {
  using enum AgentState;
  using On = AgentOn;
  return std::array{
      AgentPair{idle, On::spawned},       AgentPair{idle, On::spawn_failed},
      AgentPair{idle, On::exited_well},   AgentPair{idle, On::failed},
      AgentPair{idle, On::pass},          AgentPair{idle, On::clock},
      AgentPair{starting, On::start},     AgentPair{running, On::start},
      AgentPair{running, On::spawned},    AgentPair{draining, On::start},
      AgentPair{ended, On::start},        AgentPair{ended, On::spawned},
      AgentPair{ended, On::spawn_failed}, AgentPair{ended, On::exited_well},
      AgentPair{ended, On::failed},       AgentPair{ended, On::stop},
      AgentPair{ended, On::pass},         AgentPair{ended, On::clock},
  };
}();

constexpr bool agent_handles(AgentState state, AgentOn on) {
  for (const auto& move : kAgentMoves) {
    if (move.from == state && move.on == on) return true;
  }
  return false;
}

constexpr bool agent_may_move(const AgentMove& move) {
  for (const auto& row : kAgentMoves) {
    if (row == move) return true;
  }
  return false;
}

consteval bool each_agent_pair_has_one_home() {
  for (std::size_t s = 0; s < kAgentStates; ++s) {
    for (std::size_t e = 0; e < kAgentEvents; ++e) {
      const auto state = static_cast<AgentState>(s);
      const auto on = static_cast<AgentOn>(e);
      int homes = agent_handles(state, on) ? 1 : 0;
      for (const auto& pair : kAgentIgnored) homes += pair.state == state && pair.on == on;
      if (homes != 1) return false;
    }
  }
  return true;
}
static_assert(each_agent_pair_has_one_home(),
              "a pair of state and event is missing or twice there");

}  // namespace dlaunch
