// ProgressWatch: looks at how far the workers of this node have come, by their flight records and
// /proc, and asks HangJudge and StragglerJudge what to make of it: every 200 ms with a hang
// time-out, ten times in a window of the stragglers without, and at once when a child was stopped
// or continued. One thread, the loop's.
#pragma once

#include <functional>
#include <set>
#include <string>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "elastic/hang.h"
#include "elastic/straggler.h"
#include "launcher/processes.h"
#include "launcher/step_digest.h"

namespace dlaunch {

class ProgressWatch {
 public:
  struct Listener {
    std::function<void(const std::string& sentence)> warn;
    std::function<void(const RankSet& ranks)> dump;
    std::function<void(const RankSet& ranks, const std::string& sentence)> replace;
    std::function<void(int rank, const std::string& why)> replace_slow;
  };
  struct Options {
    std::optional<Duration> hang_timeout;  // none: hangs are not looked for
    StragglerJudgeConfig stragglers;
  };
  ProgressWatch(asio::io_context& loop, const Processes& processes, const Options& options,
                Listener listener);

  // recovered: how long the job was without one.
  void new_round(const StragglerJudge::NewRound& round, std::optional<Duration> recovered);
  void gone(int rank) { feed(HangJudge::Gone{rank}); }
  void look();  // at who was stopped, and with a hang time-out who hangs
  // Nobody is watched any more.
  void stop();

 private:
  void note_leavers();
  void feed(const HangJudge::Event& event);
  void feed(const StragglerJudge::Event& event);
  void arm();
  void look_for_slow();

  const Processes& processes_;
  const bool looks_for_hangs_;
  const bool looks_for_slow_;
  const Duration interval_;
  HangJudge hangs_;
  StragglerJudge stragglers_;
  std::set<int> left_;  // ranks that wait for the next round
  StepDigest digest_;
  Listener listener_;
  asio::steady_timer timer_;
  bool stopped_ = false;
};

}  // namespace dlaunch
