#include "launcher/lead/progress_display.h"

#include <utility>

namespace dlaunch {

ProgressDisplay::ProgressDisplay(asio::io_context& loop, OutputHub& hub, bool live, Look look,
                                 Pace pace)
    : hub_(hub),
      look_(std::move(look)),
      pace_(std::move(pace)),
      line_(live, steady_now()),
      timer_(loop, [this] { turn(); }) {
  timer_.arm(line_.deadline());
}

void ProgressDisplay::observe(JobState state, int round) {
  if (ended_ || (state == state_ && round == round_)) return;
  state_ = state;
  round_ = round;
  line_.changed();
  turn();
}

void ProgressDisplay::turn() {
  if (ended_) return;
  const auto turn_now = line_.turn(steady_now(), pace_());
  if (turn_now.row) {
    const auto& [text, urgent] = *turn_now.row;
    hub_.set_own_row(text.empty() ? "" : "dlaunch: " + text, urgent);
  }
  if (turn_now.line) hub_.own_line("dlaunch: " + *turn_now.line);
  timer_.arm(line_.deadline());
  if (!turn_now.look) return;
  look_([this](const JobStatus& job) {
    line_.looked(steady_now(), job);
    turn();
  });
}

void ProgressDisplay::end() {
  if (std::exchange(ended_, true)) return;
  timer_.arm(kNever);
  hub_.set_own_row("", false);
  if (const auto line = line_.last_line(pace_())) hub_.own_line("dlaunch: " + *line);
}

}  // namespace dlaunch
