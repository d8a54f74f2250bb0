// Chaos hurts a job's own workers at random times, so that people can see how their program takes
// it. Pure: it is asked when something is due, and says to whom to do what. The same seed gives the
// same times and, with the same workers alive, the same victims.
//
//   kill=5s             SIGKILL to a random worker, every 5 s or so
//   stop=10s:500ms      SIGSTOP, and SIGCONT 500 ms later (1 s if it is not said)
//   slow=20s:5s         for 5 s (if it is not said) it runs only half of the time
//   seed=7              1 if it is not said
//
// Intervals vary evenly between half and one and a half times what is said.
//
// Nobody is hurt until every member of the round has begun its work, and meanwhile the clocks of
// all three kinds stand still: a program that takes long to start would never get on. A worker has
// begun when it has joined its round (an elastic one) or has called dl_init(). One whose program
// does neither is only known by its age: it has begun 10 s after its start where it has written
// something, and 30 s after its start where it has not. Each time a worker is killed that had not
// joined, both times double, up to 5 minutes, since it may have been about to join: a program that
// joins within 5 minutes gets there. Where some worker of the job has joined or called dl_init(),
// the others are expected to do so, too, for 5 minutes. Once all have begun, half an interval
// passes before the first of them is killed.
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

  struct Member {  // of the round, with a process that runs
    int slot = 0;
    bool joined = false;      // its round, or it has called dl_init()
    bool has_spoken = false;  // it has written to its stdout or stderr
    Duration ran{};           // since its start
  };
  struct Deed {
    int victim;
    int signal;
    Duration stands{};  // after SIGSTOP: then its host continues it, whoever leads by then
  };
  // Its members may have to start.
  void new_round(TimePoint now);
  // What is to be done now. Where looks() is true the members have to be described completely;
  // otherwise only their slots matter.
  std::vector<Deed> step(TimePoint now, const std::vector<Member>& members);
  bool looks(TimePoint now) const;
  TimePoint deadline() const;

 private:
  struct Stopped {
    TimePoint next{};  // when it is stopped again
    TimePoint until{};
  };

  void schedule(TimePoint now, const ChaosConfig::Ill& ill, TimePoint& next);
  bool has_begun(const Member& member) const;
  bool all_have_begun(TimePoint now, const std::vector<Member>& members);
  void go_on(TimePoint now);
  const Member* victim(const std::vector<Member>& members);
  void strike(TimePoint now, const std::vector<Member>& members, std::vector<Deed>& deeds);

  const ChaosConfig config_;
  std::mt19937_64 random_;
  TimePoint kill_at_ = kNever, stop_at_ = kNever, slow_at_ = kNever;
  std::map<int, Stopped> ill_;             // by victim
  std::optional<TimePoint> stands_since_;  // the clocks stand still since then
  TimePoint look_at_{};                    // again at the members, where they do
  bool joins_ = false;                     // some worker of the job has joined
  int patience_ = 1;                       // how much longer than at first workers are spared
};

}  // namespace dlaunch
