// The agent's states and what moves it between them, as rows that read aloud. A static_assert
// proves that each pair of state and event is either handled or listed as ignored.
//
//   idle -> starting -> running -> draining -> ended
//              ^___________________|   a restart: the next round
#pragma once

#include <array>
#include <cstddef>

namespace dlaunch {

enum class AgentState { idle, starting, running, draining, ended };
enum class AgentOn {
  start,         // go
  spawned,       // the worker asked for runs
  spawn_failed,  // it could not be started
  exited_well,   // a worker ended with code 0
  failed,        // a worker ended otherwise
  stop,          // the user's signal to end
  pass,          // the user's signal to hand on
  clock,         // the deadline came
};
inline constexpr std::size_t kAgentStates = 5;
inline constexpr std::size_t kAgentEvents = 8;

struct AgentPair {
  AgentState state;
  AgentOn on;
};

inline constexpr std::array kAgentHandled = {
    AgentPair{AgentState::idle, AgentOn::start},
    AgentPair{AgentState::idle, AgentOn::stop},
    AgentPair{AgentState::starting, AgentOn::spawned},
    AgentPair{AgentState::starting, AgentOn::spawn_failed},
    AgentPair{AgentState::starting, AgentOn::exited_well},
    AgentPair{AgentState::starting, AgentOn::failed},
    AgentPair{AgentState::starting, AgentOn::stop},
    AgentPair{AgentState::starting, AgentOn::pass},
    AgentPair{AgentState::starting, AgentOn::clock},
    AgentPair{AgentState::running, AgentOn::exited_well},
    AgentPair{AgentState::running, AgentOn::failed},
    AgentPair{AgentState::running, AgentOn::stop},
    AgentPair{AgentState::running, AgentOn::pass},
    AgentPair{AgentState::running, AgentOn::clock},
    AgentPair{AgentState::draining, AgentOn::exited_well},
    AgentPair{AgentState::draining, AgentOn::failed},
    AgentPair{AgentState::draining, AgentOn::stop},
    AgentPair{AgentState::draining, AgentOn::pass},
    AgentPair{AgentState::draining, AgentOn::clock},
};

inline constexpr std::array kAgentIgnored = {
    AgentPair{AgentState::idle, AgentOn::spawned},
    AgentPair{AgentState::idle, AgentOn::spawn_failed},
    AgentPair{AgentState::idle, AgentOn::exited_well},
    AgentPair{AgentState::idle, AgentOn::failed},
    AgentPair{AgentState::idle, AgentOn::pass},
    AgentPair{AgentState::idle, AgentOn::clock},
    AgentPair{AgentState::starting, AgentOn::start},
    AgentPair{AgentState::running, AgentOn::start},
    AgentPair{AgentState::running, AgentOn::spawned},
    AgentPair{AgentState::running, AgentOn::spawn_failed},
    AgentPair{AgentState::draining, AgentOn::start},
    AgentPair{AgentState::draining, AgentOn::spawned},
    AgentPair{AgentState::draining, AgentOn::spawn_failed},
    AgentPair{AgentState::ended, AgentOn::start},
    AgentPair{AgentState::ended, AgentOn::spawned},
    AgentPair{AgentState::ended, AgentOn::spawn_failed},
    AgentPair{AgentState::ended, AgentOn::exited_well},
    AgentPair{AgentState::ended, AgentOn::failed},
    AgentPair{AgentState::ended, AgentOn::stop},
    AgentPair{AgentState::ended, AgentOn::pass},
    AgentPair{AgentState::ended, AgentOn::clock},
};

consteval bool each_agent_pair_has_one_home() {
  for (std::size_t s = 0; s < kAgentStates; ++s) {
    for (std::size_t e = 0; e < kAgentEvents; ++e) {
      int homes = 0;
      auto count = [&](const AgentPair& pair) {
        homes += pair.state == static_cast<AgentState>(s) && pair.on == static_cast<AgentOn>(e);
      };
      for (const auto& pair : kAgentHandled) count(pair);
      for (const auto& pair : kAgentIgnored) count(pair);
      if (homes != 1) return false;
    }
  }
  return true;
}
static_assert(each_agent_pair_has_one_home(),
              "a pair of state and event is missing or twice there");

constexpr bool agent_handles(AgentState state, AgentOn on) {
  for (const auto& pair : kAgentHandled) {
    if (pair.state == state && pair.on == on) return true;
  }
  return false;
}

}  // namespace dlaunch
