// ProgressWatch: looks at how far the workers of this node have come, by their flight records and
// /proc, and asks HangJudge what to make of it. With a hang time-out it looks every 200 ms, without
// one only when a child was stopped or continued. One thread, the loop's.
#pragma once

#include <functional>
#include <set>
#include <string>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "elastic/hang.h"
#include "launcher/processes.h"

namespace dlaunch {

class ProgressWatch {
 public:
  struct Listener {
    std::function<void(int rank, const std::string& sentence)> warn;
    std::function<void(const RankSet& ranks)> dump;
    std::function<void(const RankSet& ranks, const std::string& sentence)> replace;
  };
  ProgressWatch(asio::io_context& loop, const Processes& processes, int slots,
                std::optional<Duration> hang_timeout, Listener listener);

  void new_round() { feed(HangJudge::NewRound{}); }
  void gone(int rank) { feed(HangJudge::Gone{rank}); }
  void look();
  // Nobody is watched any more.
  void stop();

 private:
  void feed(const HangJudge::Event& event);
  void arm();
  void add_samples(Slot slot, HangJudge::Samples& samples) const;

  const Processes& processes_;
  const int slots_;
  const bool regular_;
  HangJudge judge_;
  Listener listener_;
  asio::steady_timer timer_;
  bool stopped_ = false;
};

}  // namespace dlaunch
