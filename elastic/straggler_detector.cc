#include "elastic/straggler_detector.h"

#include <algorithm>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include "base/units.h"
#include "elastic/comparison.h"

namespace dlaunch {
namespace {

constexpr double kFewSteps = 0.4;          // of window_steps, if these take long
constexpr std::size_t kFewestSamples = 5;  // in a window, if they are digests

std::string describe_rank(const Slowness& slow, const Comparison& at, double step) {
  return fmt::format(
      "rank {} takes {:.2f}x the time of the others between collectives: {}, they {}{}; without it "
      "a step of {} would take {}",
      slow.rank, slow.ratio, format_seconds(at.own), format_seconds(at.others),
      slow.phase == SlowPhase::input ? ", mostly waiting for input" : "", format_seconds(step),
      format_seconds(step * (1 - slow.gain)));
}

}  // namespace

void StragglerDetector::reset(int ranks) {
  ranks_ = ranks;
  closed_ = steps_ = 0;
  window_.clear();
  members_.clear();
}

std::optional<StragglerDetector::Window> StragglerDetector::add(TimePoint now,
                                                                const StepTimes& step) {
  if (ranks_ < 2 || !usable(step, static_cast<std::size_t>(ranks_))) return std::nullopt;
  if (window_.empty()) began_ = now;
  window_.push_back(step);
  steps_ += step.steps;
  const Duration time = now - began_;
  const bool enough =
      steps_ >= config_.window_steps ||
      (steps_ >= config_.window_steps * kFewSteps && time >= config_.window_time * 3 / 2);
  if (!enough || window_.size() < kFewestSamples || time < config_.window_time) {
    return std::nullopt;
  }
  Window result = close();
  window_.clear();
  steps_ = 0;
  return result;
}

StragglerDetector::Window StragglerDetector::close() {
  Window result;
  result.step = step_of(window_);
  result.warmup = closed_++ < config_.warmup_windows;
  if (result.warmup) return result;
  auto findings = judge_ranks(result.step);
  for (auto& finding : judge_links(window_, result.step, config_.line_kind))
    findings.push_back(std::move(finding));
  for (const Finding& finding : findings) {
    const auto& [rank, peer] = std::tie(finding.slowness.rank, finding.slowness.peer);
    Member& member = members_[{rank, std::max(peer, kToAll)}];  // one for all ways of its line
    member.over = finding.candidate ? member.over + 1 : 0;
    member.under = finding.clear ? member.under + 1 : 0;
    if (finding.candidate || !member.raised) member.slowness = finding.slowness;
    if (!member.raised && member.over >= config_.windows) {
      member.raised = true;
      result.raised.push_back(member.slowness);
    } else if (member.raised && member.under >= config_.windows) {
      member.raised = false;
      result.cleared.push_back(member.slowness);
    }
  }
  return result;
}

std::vector<Slowness> StragglerDetector::slow() const {
  std::vector<Slowness> all;
  for (const auto& [key, member] : members_) {
    if (member.raised) all.push_back(member.slowness);
  }
  return all;
}

std::vector<StragglerDetector::Finding> StragglerDetector::judge_ranks(double step) const {
  const auto size = static_cast<std::size_t>(ranks_);
  std::vector<Values> own(size);
  Values medians, arrivals, inputs;
  for (std::size_t i = 0; i < size; ++i) {
    own[i] =
        column(window_, [&](const StepTimes& s) { return s.ranks[i].step - s.ranks[i].in_op; });
    medians.push_back(median(own[i]));
    arrivals.push_back(median(column(window_, [&](const StepTimes& s) {
      Values late;
      for (const RankTimes& rank : s.ranks) late.push_back(rank.late);
      return s.ranks[i].late - median(std::move(late));
    })));
    inputs.push_back(median(column(window_, [&](const StepTimes& s) { return s.ranks[i].input; })));
  }
  EachLeftOut others(std::move(medians));
  const EachLeftOut others_arrivals(arrivals), others_inputs(inputs);
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < size; ++i) {
    const Comparison at(own[i], others.distribution_without(median(own[i])), config_.ratio);
    const double later = arrivals[i] - others_arrivals.median_without(arrivals[i]);
    const double excess = std::min(at.own - at.others, later);
    Finding finding;
    finding.slowness.rank = static_cast<int>(i);
    finding.slowness.ratio = at.ratio();
    finding.candidate = at.shows(excess, config_.ratio) && excess >= kLeastCost * step;
    finding.clear = excess < (config_.ratio - 1) / 2 * at.others;
    if (finding.candidate) {
      const bool input = inputs[i] - others_inputs.median_without(inputs[i]) > excess / 2;
      finding.slowness.phase = input ? SlowPhase::input : SlowPhase::before_op;
      finding.slowness.gain = gain_without(static_cast<int>(i), step);
      finding.slowness.sentence = describe_rank(finding.slowness, at, step);
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

// How much earlier the last of the others arrives, in most steps, as a share of the step.
double StragglerDetector::gain_without(int rank, double step) const {
  const auto i = static_cast<std::size_t>(rank);
  const double earlier = median(column(window_, [&](const StepTimes& s) {
    double last = s.ranks[i == 0 ? 1 : 0].late;
    for (std::size_t j = 0; j < s.ranks.size(); ++j) {
      if (j != i) last = std::max(last, s.ranks[j].late);
    }
    return s.ranks[i].late - last;
  }));
  return std::clamp(earlier / step, 0.0, 1.0);
}

}  // namespace dlaunch
