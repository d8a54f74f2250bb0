#include "launcher/lead/control/progress_line.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/rank_set.h"
#include "base/text.h"

namespace dlaunch {
namespace {

constexpr Duration kLookAtStart = std::chrono::milliseconds(500), kRedraw = std::chrono::seconds(1);
constexpr Duration kRareLook = std::chrono::minutes(1);
constexpr std::size_t kWorkersALook = 1000;  // larger jobs are looked at less often
constexpr std::size_t kShortWait = 60;       // longer lists of what a round waits for are left out

// The members of the round, and those of them that the condition holds for.
struct Members {
  int all = 0, some = 0;
  RankSet others;
};
template <class Condition>
Members members_that(const JobStatus& job, Condition condition) {
  Members found;
  for (const WorkerStatus& worker : job.workers) {
    if (worker.rank < 0) continue;
    ++found.all;
    if (condition(worker)) {
      ++found.some;
    } else {
      found.others.insert(worker.rank);
    }
  }
  return found;
}

std::string hosts_to_come(const JobStatus& job) {
  std::string text = fmt::format("starting: {} of {} hosts", job.hosts_here, job.hosts_wanted);
  for (const std::string& host : job.hosts) text += "; " + escaped(host);
  return text;
}

std::string workers_up(const JobStatus& job) {
  const Members up = members_that(job, [](const WorkerStatus& worker) { return worker.up; });
  return fmt::format("{} of {} workers", up.some, up.all);
}

std::string next_round(const JobStatus& job) {
  if (job.restarts_used == 0 && job.round <= 1) return "starting: " + workers_up(job);
  if (job.resized_from == 0)
    return fmt::format("round {}: restarting, {}", job.round, workers_up(job));
  return fmt::format("round {}: resizing, {} -> {} workers", job.round, job.resized_from, job.size);
}

std::string workers_to_come(const JobStatus& job) {
  const std::string text = next_round(job);
  const bool is_short = !job.waits_for.empty() && job.waits_for.size() <= kShortWait;
  return is_short ? text + ", waiting for " + job.waits_for : text;
}

bool has_collectives(const JobStatus& job) {
  return std::ranges::any_of(
      job.workers, [](const WorkerStatus& worker) { return worker.operation.has_value(); });
}

// Programs that do not use libdlring have no rendezvous that dlaunch sees.
std::string rendezvous(const JobStatus& job) {
  const Members in = members_that(job, [](const WorkerStatus& w) { return w.figures.in_ring; });
  if (in.some == 0 || has_collectives(job)) return "";
  if (in.some == in.all) {
    return fmt::format("round {}: {} workers, before the first collective", job.round, in.all);
  }
  return fmt::format("rendezvous: {} of {} ranks, waiting for {} {}", in.some, in.all,
                     in.others.size() == 1 ? "rank" : "ranks", format_rank_set(in.others));
}

// "5m07s", "2h05m", "3d04h"
std::string time_left(Duration left) {
  const auto seconds = static_cast<long>(to_seconds(left));
  const auto two = [](long high, const char* unit, long low, const char* below) {
    return fmt::format("{}{}{:02}{}", high, unit, low, below);
  };
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return two(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 86400) return two(seconds / 3600, "h", seconds / 60 % 60, "m");
  return two(seconds / 86400, "d", seconds / 3600 % 24, "h");
}

}  // namespace

std::string stage_of(const JobStatus& job) {
  switch (job.state) {
    case JobState::idle:
      return hosts_to_come(job);
    case JobState::forming:
      return workers_to_come(job);
    case JobState::active:
      return rendezvous(job);
    case JobState::ending:
    case JobState::ended:
      break;
  }
  return "";
}

bool is_settled(const JobStatus& job) {
  if (job.state == JobState::ending || job.state == JobState::ended) return true;
  return job.state == JobState::active && has_collectives(job);
}

std::string in_words(const RunPace& pace) {
  const RunProgress& last = pace.last;
  std::string text = fmt::format("step {}", last.step);
  if (last.total > 0) {
    const double share = static_cast<double>(last.step) / static_cast<double>(last.total);
    text += fmt::format("/{}  {:.0f}%", last.total, 100 * std::min(share, 1.0));
  }
  if (pace.stands) {
    text += fmt::format("  no step for {}", time_left(pace.age));
  } else {
    if (pace.steps_per_s) text += fmt::format("  {:.3g} steps/s", *pace.steps_per_s);
    if (pace.left) text += "  ETA " + time_left(*pace.left);
  }
  for (const auto& [name, value] : last.values) text += fmt::format("  {} {:.4g}", name, value);
  return text;
}

ProgressLine::ProgressLine(bool live, TimePoint began)
    : live_(live), first_(began + (live ? kQuickStart : kBetweenLines)), next_(first_) {}

void ProgressLine::looked(TimePoint now, const JobStatus& job) {
  looks_ = false;
  stage_ = stage_of(job);
  const bool quiet = job.state == JobState::active && stage_.empty();
  if (!quiet) quiet_since_.reset();
  if (quiet && !quiet_since_) quiet_since_ = now;
  Duration pause = kLookAtStart;
  // A program that has not joined yet may do so later, or does not use libdlring.
  if (quiet) pause = std::clamp<Duration>((now - *quiet_since_) / 4, kLookAtStart, kRareLook);
  pause *= static_cast<long>(1 + job.workers.size() / kWorkersALook);
  next_look_ = std::exchange(changed_, false) ? now : is_settled(job) ? kNever : now + pause;
}

void ProgressLine::changed() {
  changed_ = looks_;
  next_look_ = TimePoint::min();
}

ProgressLine::Row ProgressLine::row_now(const std::optional<RunPace>& pace) const {
  if (!stage_.empty()) return {stage_, true};
  return {pace ? in_words(*pace) : "", false};
}

ProgressLine::Turn ProgressLine::turn(TimePoint now, const std::optional<RunPace>& pace) {
  if (now < first_) return {};
  return live_ ? turn_of_row(now, row_now(pace)) : turn_of_lines(now, pace);
}

ProgressLine::Turn ProgressLine::turn_of_row(TimePoint now, const Row& row) {
  Turn turn{.look = !looks_ && now >= next_look_, .row = {}, .line = {}};
  looks_ = looks_ || turn.look;
  if (row != shown_) turn.row = shown_ = row;
  const bool moves = !row.text.empty() && !row.urgent;
  next_ = std::min(looks_ ? kNever : next_look_, moves ? now + kRedraw : kNever);
  return turn;
}

ProgressLine::Turn ProgressLine::turn_of_lines(TimePoint now, const std::optional<RunPace>& pace) {
  Turn turn;
  next_ = kNever;
  if (looks_) return turn;
  if (now < next_line_) {
    next_ = next_line_;
    return turn;
  }
  if (now >= next_look_) {
    turn.look = looks_ = true;
    return turn;
  }
  const std::string text = row_now(pace).text;
  const bool stands = pace && pace->stands && stage_.empty();
  if (!text.empty() && text != printed_ && !(stands && stood_)) {
    turn.line = printed_ = text;
    next_line_ = now + kBetweenLines;
  }
  stood_ = stands;
  next_ = std::max(next_look_, next_line_);
  if (pace && !stands) next_ = std::min(next_, now + kBetweenLines);
  return turn;
}

std::optional<std::string> ProgressLine::last_line(const std::optional<RunPace>& pace) const {
  if (live_ || printed_.empty() || !pace || pace->stands) return std::nullopt;
  std::string text = in_words(*pace);
  return text != printed_ ? std::optional(std::move(text)) : std::nullopt;
}

}  // namespace dlaunch
