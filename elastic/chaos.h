// Chaos hurts a job's own workers at random times, so that users can see how their program copes.
// Pure: the caller asks when something is due, and gets the victims and signals. The same seed
// gives the same times and, with the same workers alive, the same victims.
//
//   kill=5s             SIGKILL to a random worker, every 5 s or so
//   stop=10s:500ms      SIGSTOP, and SIGCONT 500 ms later (default: 1 s)
//   slow=20s:5s         for 5 s (the default) it runs only half of the time
//   seed=7              default: 1
//
// Intervals vary evenly between half and one and a half times the given value.
//
// Chaos hurts no worker until every member of the round has begun its work; meanwhile the clocks of
// all three kinds stand still, or a program that starts slowly would never make progress. A worker
// has begun when it has joined its round (an elastic one) or has called dl_init(). For a program
// that does neither only the worker's age counts: it has begun 10 s after its start if it has
// written something, else 30 s after its start. Each kill of a worker that had not joined doubles
// both times, up to 5 minutes, because it may have been about to join: a program that joins within
// 5 minutes succeeds. Once some worker of the job has joined or called dl_init(), Chaos waits up to
// 5 minutes for the others to do so. Once all have begun, half an interval passes before the first
// kill.
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

// Errors call it `name`.
Result<ChaosConfig> parse_chaos(std::string_view text, std::string_view name);

class Chaos {
 public:
  Chaos(TimePoint now, const ChaosConfig& config);

  struct Member {  // of the round, with a running process
    int slot = 0;
    bool joined = false;      // its round, or it has called dl_init()
    bool has_spoken = false;  // it has written to its stdout or stderr
    Duration ran{};           // since its start
  };
  struct Deed {
    int victim;
    int signal;
    Duration stands{};  // after SIGSTOP: its host continues it then, also under another leader
  };
  // The new round's members may still have to start.
  void new_round(TimePoint now);
  // The deeds that are due now. If looks() is true, `members` must be complete; otherwise only
  // their slots matter.
  std::vector<Deed> step(TimePoint now, const std::vector<Member>& members);
  bool looks(TimePoint now) const;
  TimePoint deadline() const;

 private:
  struct Stopped {
    TimePoint next{};  // the next SIGSTOP
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
  std::optional<TimePoint> stands_since_;  // since when the clocks stand still
  TimePoint look_at_{};                    // the next look at the members meanwhile
  bool joins_ = false;                     // some worker of the job has joined
  int patience_ = 1;                       // the factor on both times
};

}  // namespace dlaunch
