#include "launcher/lead/control/run_pace.h"

#include <algorithm>

namespace dlaunch {

void PaceMeter::begin_round() {
  in_round_ = false;
  if (reports_.size() > 1) reports_.erase(reports_.begin(), reports_.end() - 1);
}

void PaceMeter::take(int rank, const RunProgress& progress) {
  if (in_round_ && rank > rank_) return;
  const bool again = rank == rank_ && !reports_.empty() && progress.at == reports_.back().at;
  if (again) return;
  const bool goes_on = in_round_ && rank == rank_ && !reports_.empty() &&
                       progress.at > reports_.back().at && progress.step >= reports_.back().step;
  if (!goes_on) reports_.clear();
  rank_ = rank;
  in_round_ = true;
  reports_.push_back(progress);
  while (reports_.size() > kMostReports ||
         (reports_.size() > 2 && reports_[1].at <= progress.at - kWindow)) {
    reports_.pop_front();
  }
}

std::optional<RunPace> PaceMeter::at(TimePoint now) const {
  if (reports_.empty()) return std::nullopt;
  const RunProgress& last = reports_.back();
  RunPace pace{.rank = rank_, .last = last, .age = std::max(now - last.at, Duration::zero())};
  const RunProgress& first = reports_.front();
  if (!in_round_ || first.at == last.at) return pace;
  const Duration usual = (last.at - first.at) / (reports_.size() - 1);
  pace.stands = pace.age > std::max<Duration>(5 * usual, std::chrono::seconds(10));
  if (last.step == first.step) return pace;
  const double rate = static_cast<double>(last.step - first.step) / to_seconds(last.at - first.at);
  pace.steps_per_s = rate;
  constexpr double kYear = 365 * 86400.0;
  const double left_s = static_cast<double>(last.total - last.step) / rate;
  if (last.total > 0 && left_s < kYear) {
    pace.left = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(std::max(left_s - to_seconds(pace.age), 0.0)));
  }
  return pace;
}

}  // namespace dlaunch
