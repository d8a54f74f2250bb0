// Chaos hurts a job's own workers at random times, so that people can see how their program takes
// it. Pure: it is asked when something is due, and says to whom to do what. The same seed gives the
// same times and, with the same workers alive, the same victims.
//
//   kill=5s             SIGKILL to a random worker, every 5 s or so
//   stop=10s:500ms      SIGSTOP, and SIGCONT 500 ms later (1 s if it is not said)
//   slow=20s:5s         for 5 s (if it is not said) it runs only half of the time
//   seed=7              1 if it is not said
//
// Intervals vary evenly between half and one and a half times what is said. Nobody is killed in the
// first half interval of a round: a program that takes long to begin one would never get on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

struct ChaosConfig {
  struct Ill {
    Duration every{}, lasts{};  // every 0: never
  };
  Ill kill, stop, slow;
  std::uint64_t seed = 1;
};

// `name` is what an error calls it.
Result<ChaosConfig> parse_chaos(std::string_view text, std::string_view name);

class Chaos {
 public:
  Chaos(TimePoint now, const ChaosConfig& config);

  struct Deed {
    int victim;
    int signal;
    Duration stands{};  // after SIGSTOP: then its host continues it, whoever leads by then
  };
  void new_round(TimePoint now);
  // What is to be done now, to some of those who live.
  std::vector<Deed> step(TimePoint now, const std::vector<int>& alive);
  TimePoint deadline() const;

 private:
  struct Stopped {
    TimePoint next{};  // when it is stopped again
    TimePoint until{};
  };

  void schedule(TimePoint now, const ChaosConfig::Ill& ill, TimePoint& next);
  std::optional<int> victim(const std::vector<int>& alive);

  const ChaosConfig config_;
  std::mt19937_64 random_;
  TimePoint kill_at_ = kNever, stop_at_ = kNever, slow_at_ = kNever;
  std::map<int, Stopped> ill_;  // by victim
};

}  // namespace dlaunch
