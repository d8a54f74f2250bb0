#include "elastic/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/units.h"

namespace dlaunch {
namespace {

using Values = std::vector<double>;

constexpr double kSigmas = 4;
constexpr double kMadToSigma = 1.4826;   // of a normal distribution
constexpr double kMedianError = 1.2533;  // of a median, in errors of a mean
constexpr double kPersistence = 0.8;     // share of steps
constexpr double kLeastCost = 0.05;      // share of the step
constexpr double kLinkRatio = 2;
constexpr double kFewSteps = 0.4;          // of window_steps, if these take long
constexpr std::size_t kFewestSamples = 5;  // in a window, if they are digests
constexpr std::size_t kFewestLinks = 3;    // of a kind, to judge which of them is slow
constexpr std::size_t kFewestOfLine = 2;   // of a rank one way, and of the others

double median(Values values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double sigma(const Values& values, double center) {
  Values distances;
  for (const double value : values) distances.push_back(std::fabs(value - center));
  return kMadToSigma * median(std::move(distances));
}

Values without(Values values, std::size_t i) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(i));
  return values;
}

// A member's values in the window against the others' medians.
struct Comparison {
  double own = 0, others = 0;  // medians
  double noise = 0;            // of either, as one sigma
  double persistence = 0;      // share of its values well above the others

  Comparison(const Values& values, const Values& medians, std::size_t i, double ratio)
      : own(medians[i]) {
    const Values rest = without(medians, i);
    others = median(rest);
    const double error =
        kMedianError * sigma(values, own) / std::sqrt(static_cast<double>(values.size()));
    noise = std::max(sigma(rest, others), error);
    const double half_way = others * (1 + (ratio - 1) / 2);
    const auto above =
        std::count_if(values.begin(), values.end(), [&](double value) { return value > half_way; });
    persistence = static_cast<double>(above) / static_cast<double>(values.size());
  }
  double ratio() const { return own / std::max(others, 1e-12); }
  // Whether `excess` over the others, in the unit of the values, is more than noise.
  bool shows(double excess, double ratio) const {
    return excess >= (ratio - 1) * others && excess > kSigmas * noise &&
           persistence >= kPersistence;
  }
};

// get(step) for all steps of the window.
template <class Get>
Values column(const std::vector<StepTimes>& window, Get get) {
  Values values;
  for (const StepTimes& step : window) values.push_back(get(step));
  return values;
}

// The seconds per byte of the other links from the same sender, or of those to the same receiver if
// that is more; 0 if there are none.
template <class Links>
double of_same_end(const Links& links, const std::pair<int, int>& ends) {
  Values sent, received;
  for (const auto& [others_ends, samples] : links) {
    if (others_ends == ends) continue;
    if (others_ends.first == ends.first) sent.push_back(median(samples.per_byte));
    if (others_ends.second == ends.second) received.push_back(median(samples.per_byte));
  }
  return std::max(sent.empty() ? 0 : median(sent), received.empty() ? 0 : median(received));
}

std::string describe_rank(const Slowness& slow, const Comparison& at, double step) {
  return fmt::format(
      "rank {} takes {:.2f}x the time of the others between collectives: {}, they {}{}; without it "
      "a step of {} would take {}",
      slow.rank, slow.ratio, format_seconds(at.own), format_seconds(at.others),
      slow.phase == SlowPhase::input ? ", mostly waiting for input" : "", format_seconds(step),
      format_seconds(step * (1 - slow.gain)));
}

std::string describe_link(const Slowness& slow, const Comparison& at, double step) {
  return fmt::format(
      "the link from rank {} to rank {} is {:.2f}x as slow as others of its kind: {}, they {}; it "
      "costs {} of a step of {}",
      slow.rank, slow.peer, slow.ratio, format_rate(1 / at.own), format_rate(1 / at.others),
      format_seconds(slow.gain * step), format_seconds(step));
}

std::string describe_line(const Slowness& slow, const Comparison& at, double step) {
  return fmt::format(
      "the links {} rank {} {} all others are {:.2f}x as slow as the rest: {}, they {}; a step "
      "takes "
      "{}",
      slow.peer == kToAll ? "from" : "to", slow.rank, slow.peer == kToAll ? "to" : "from",
      slow.ratio, format_rate(1 / at.own), format_rate(1 / at.others), format_seconds(step));
}

}  // namespace

void StragglerDetector::reset(int ranks) {
  ranks_ = ranks;
  closed_ = steps_ = 0;
  window_.clear();
  members_.clear();
}

bool StragglerDetector::usable(const StepTimes& step) const {
  if (step.steps < 1 || step.ranks.size() != static_cast<std::size_t>(ranks_)) return false;
  const auto time = [](double value) { return std::isfinite(value) && value >= 0; };
  const bool ranks = std::all_of(step.ranks.begin(), step.ranks.end(), [&](const RankTimes& r) {
    return std::isfinite(r.late) && time(r.in_op) && time(r.input) && time(r.step) && r.step > 0;
  });
  const bool links = std::all_of(step.links.begin(), step.links.end(), [&](const LinkTimes& l) {
    return time(l.seconds) && time(l.bytes) && l.bytes > 0;
  });
  return ranks && links;
}

std::optional<StragglerDetector::Window> StragglerDetector::add(TimePoint now,
                                                                const StepTimes& step) {
  if (ranks_ < 2 || !usable(step)) return std::nullopt;
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
  result.step = median(column(window_, [](const StepTimes& s) {
    Values steps;
    for (const RankTimes& rank : s.ranks) steps.push_back(rank.step);
    return median(std::move(steps));
  }));
  result.warmup = closed_++ < config_.warmup_windows;
  if (result.warmup) return result;
  auto findings = judge_ranks(result.step);
  for (auto& finding : judge_links(result.step)) findings.push_back(std::move(finding));
  for (const Finding& finding : findings) {
    Member& member = members_[{finding.slowness.rank, finding.slowness.peer}];
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
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < size; ++i) {
    const Comparison at(own[i], medians, i, config_.ratio);
    const double later = arrivals[i] - median(without(arrivals, i));
    const double excess = std::min(at.own - at.others, later);
    Finding finding;
    finding.slowness.rank = static_cast<int>(i);
    finding.slowness.ratio = at.ratio();
    finding.candidate = at.shows(excess, config_.ratio) && excess >= kLeastCost * step;
    finding.clear = excess < (config_.ratio - 1) / 2 * at.others;
    if (finding.candidate) {
      const bool input = inputs[i] - median(without(inputs, i)) > excess / 2;
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

std::vector<StragglerDetector::Finding> StragglerDetector::judge_links(double step) const {
  std::map<int, std::map<std::pair<int, int>, LinkSamples>> kinds;
  for (const StepTimes& one : window_) {
    for (const LinkTimes& link : one.links) {
      LinkSamples& samples = kinds[link.kind][{link.from, link.to}];
      samples.per_byte.push_back(link.seconds / link.bytes);
      samples.bytes.push_back(link.bytes);
    }
  }
  std::vector<Finding> findings;
  for (auto& [kind, links] : kinds) {
    std::erase_if(links, [&](const auto& link) {
      return link.second.per_byte.size() < (window_.size() + 1) / 2;
    });
    if (links.size() < kFewestLinks) continue;
    Values medians;
    for (const auto& [ends, samples] : links) medians.push_back(median(samples.per_byte));
    std::size_t i = 0;
    for (const auto& [ends, samples] : links) {
      const Comparison at(samples.per_byte, medians, i++, kLinkRatio);
      const double bytes = median(samples.bytes);
      const double excess = at.own - at.others;
      Finding finding;
      finding.slowness = {.rank = ends.first,
                          .peer = ends.second,
                          .phase = SlowPhase::link,
                          .ratio = at.ratio(),
                          .gain = std::clamp(excess * bytes / step, 0.0, 1.0),
                          .sentence = {}};
      finding.candidate = at.shows(excess, kLinkRatio) && excess * bytes >= kLeastCost * step &&
                          at.own >= kLinkRatio * of_same_end(links, ends);
      finding.clear = excess < (kLinkRatio - 1) / 2 * at.others;
      if (finding.candidate) finding.slowness.sentence = describe_link(finding.slowness, at, step);
      findings.push_back(std::move(finding));
    }
    if (kind == config_.line_kind) judge_lines(links, step, findings);
  }
  return findings;
}

// Compares links of one kind: those from a rank, or to it, with those of other ranks.
void StragglerDetector::judge_lines(const std::map<std::pair<int, int>, LinkSamples>& links,
                                    double step, std::vector<Finding>& findings) {
  std::set<int> ranks;
  for (const auto& [ends, samples] : links) ranks.insert({ends.first, ends.second});
  for (const int rank : ranks) {
    for (const int peer : {kToAll, kFromAll}) {
      Values own, own_medians, medians = {0};
      double bytes = 0;
      for (const auto& [ends, samples] : links) {
        if ((peer == kToAll ? ends.first : ends.second) == rank) {
          own.insert(own.end(), samples.per_byte.begin(), samples.per_byte.end());
          own_medians.push_back(median(samples.per_byte));
          bytes += median(samples.bytes);
        } else if (ends.first != rank && ends.second != rank) {
          medians.push_back(median(samples.per_byte));
        }
      }
      if (own_medians.size() < kFewestOfLine || medians.size() <= kFewestOfLine) continue;
      medians[0] = median(own);
      const Comparison at(own, medians, 0, kLinkRatio);
      const double excess = at.own - at.others;
      const double least = *std::min_element(own_medians.begin(), own_medians.end());
      Finding finding;
      finding.slowness = {.rank = rank,
                          .peer = peer,
                          .phase = SlowPhase::link,
                          .ratio = at.ratio(),
                          .gain = std::clamp(excess * bytes / step, 0.0, 1.0),
                          .sentence = {}};
      finding.candidate = at.shows(excess, kLinkRatio) && least >= kLinkRatio * at.others &&
                          excess * bytes >= kLeastCost * step;
      finding.clear = excess < (kLinkRatio - 1) / 2 * at.others;
      if (finding.candidate) finding.slowness.sentence = describe_line(finding.slowness, at, step);
      findings.push_back(std::move(finding));
    }
  }
}

}  // namespace dlaunch
