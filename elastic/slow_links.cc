#include "elastic/slow_links.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"
#include "elastic/comparison.h"

namespace dlaunch {
namespace {

constexpr double kRatio = 2;
constexpr std::size_t kFewestLinks = 3;   // of a kind, to judge which of them is slow
constexpr std::size_t kFewestOfLine = 2;  // of a rank
constexpr std::size_t kFewestOneWay = 2;  // of the others, to judge a rank's links of one way

struct Samples {
  Values per_byte, bytes;
  double median_per_byte = 0, median_bytes = 0;
};
using Ends = std::pair<int, int>;  // sender and receiver
using Links = std::map<Ends, Samples>;

// The links that are in half of the window's steps, by kind.
std::map<int, Links> links_of(const std::vector<StepTimes>& window) {
  std::map<int, Links> kinds;
  for (const StepTimes& step : window) {
    for (const LinkTimes& link : step.links) {
      Samples& samples = kinds[link.kind][{link.from, link.to}];
      samples.per_byte.push_back(link.seconds / link.bytes);
      samples.bytes.push_back(link.bytes);
    }
  }
  for (auto& [kind, links] : kinds) {
    std::erase_if(links, [&](const auto& link) {
      return link.second.per_byte.size() < (window.size() + 1) / 2;
    });
    for (auto& [ends, samples] : links) {
      samples.median_per_byte = median(samples.per_byte);
      samples.median_bytes = median(samples.bytes);
    }
  }
  return kinds;
}

// The seconds per byte of the other links from the same sender, or of those to the same receiver if
// that is more; 0 if there are none.
double of_same_end(const Links& links, const Ends& ends) {
  Values sent, received;
  for (const auto& [others_ends, samples] : links) {
    if (others_ends == ends) continue;
    if (others_ends.first == ends.first) sent.push_back(samples.median_per_byte);
    if (others_ends.second == ends.second) received.push_back(samples.median_per_byte);
  }
  return std::max(sent.empty() ? 0 : median(sent), received.empty() ? 0 : median(received));
}

std::string cost_in_words(const Slowness& slow, double step) {
  return fmt::format("it costs {} of a step of {}", format_seconds(slow.gain * step),
                     format_seconds(step));
}

std::string describe_link(const Slowness& slow, const Comparison& at, double step) {
  return fmt::format(
      "the link from rank {} to rank {} is {:.2f}x as slow as others of its kind: {}, they {}; {}",
      slow.rank, slow.peer, slow.ratio, format_rate(1 / at.own), format_rate(1 / at.others),
      cost_in_words(slow, step));
}

std::string describe_line(const Slowness& slow, const Comparison& at, double step) {
  const char* which = slow.peer == kToAll     ? "from rank {} to all others"
                      : slow.peer == kFromAll ? "to rank {} from all others"
                                              : "between rank {} and all others";
  return fmt::format("the links {} are {:.2f}x as slow as the rest: {}, they {}; {}",
                     fmt::format(fmt::runtime(which), slow.rank), slow.ratio,
                     format_rate(1 / at.own), format_rate(1 / at.others),
                     cost_in_words(slow, step));
}

// excess: of a byte. bytes: of the link, or the busiest link of the line.
LinkFinding finding_of(int rank, int peer, const Comparison& at, double bytes, double step) {
  const double excess = at.own - at.others;
  LinkFinding finding;
  finding.slowness = {.rank = rank,
                      .peer = peer,
                      .phase = SlowPhase::link,
                      .ratio = at.ratio(),
                      .gain = std::clamp(excess * bytes / step, 0.0, 1.0),
                      .sentence = {}};
  finding.candidate = at.shows(excess, kRatio) && excess * bytes >= kLeastCost * step;
  finding.clear = excess < (kRatio - 1) / 2 * at.others;
  return finding;
}

std::vector<LinkFinding> judge_each(const Links& links, double step) {
  Values medians;
  for (const auto& [ends, samples] : links) medians.push_back(samples.median_per_byte);
  EachLeftOut others(std::move(medians));
  std::vector<LinkFinding> findings;
  for (const auto& [ends, samples] : links) {
    const Comparison at(samples.per_byte, others.distribution_without(samples.median_per_byte),
                        kRatio);
    auto finding = finding_of(ends.first, ends.second, at, samples.median_bytes, step);
    finding.candidate = finding.candidate && at.own >= kRatio * of_same_end(links, ends);
    if (finding.candidate) finding.slowness.sentence = describe_link(finding.slowness, at, step);
    findings.push_back(std::move(finding));
  }
  return findings;
}

// The links of that rank, to or from all others or both, beside those without it.
std::optional<LinkFinding> judge_line(const Links& links, int rank, int peer, double step) {
  Values own, own_medians, others;
  double bytes = 0;
  for (const auto& [ends, samples] : links) {
    const bool sends = ends.first == rank, receives = ends.second == rank;
    if ((sends && peer != kFromAll) || (receives && peer != kToAll)) {
      own.insert(own.end(), samples.per_byte.begin(), samples.per_byte.end());
      own_medians.push_back(samples.median_per_byte);
      bytes = std::max(bytes, samples.median_bytes);
    } else if (!sends && !receives) {
      others.push_back(samples.median_per_byte);
    }
  }
  const bool both = peer == kBothWays;
  if (own_medians.size() < kFewestOfLine || others.size() < (both ? 1 : kFewestOneWay)) return {};
  const Comparison at(own, distribution_of(std::move(others)), kRatio);
  const double least = *std::ranges::min_element(own_medians);
  auto finding = finding_of(rank, peer, at, bytes, step);
  finding.candidate = finding.candidate && least >= kRatio * at.others;
  if (finding.candidate) finding.slowness.sentence = describe_line(finding.slowness, at, step);
  return finding;
}

std::optional<LinkFinding> judge_line(const Links& links, int rank, double step) {
  std::optional<LinkFinding> found;
  bool clear = true;
  for (const int peer : {kBothWays, kToAll, kFromAll}) {
    const auto finding = judge_line(links, rank, peer, step);
    if (!finding) continue;
    clear = clear && finding->clear;
    if (!found || (finding->candidate && !found->candidate)) found = finding;
  }
  if (found) found->clear = clear;
  return found;
}

std::vector<LinkFinding> judge_lines(const Links& links, double step) {
  std::set<int> ranks;
  for (const auto& [ends, samples] : links) ranks.insert({ends.first, ends.second});
  std::vector<LinkFinding> findings;
  for (const int rank : ranks) {
    if (auto finding = judge_line(links, rank, step)) findings.push_back(std::move(*finding));
  }
  return findings;
}

}  // namespace

std::vector<LinkFinding> judge_links(const std::vector<StepTimes>& window, double step,
                                     int line_kind) {
  std::vector<LinkFinding> all;
  for (const auto& [kind, links] : links_of(window)) {
    if (links.size() < kFewestLinks) continue;
    auto findings = judge_each(links, step);
    auto lines = kind == line_kind ? judge_lines(links, step) : std::vector<LinkFinding>();
    std::set<int> slow_lines;
    for (const LinkFinding& line : lines) {
      if (line.candidate) slow_lines.insert(line.slowness.rank);
    }
    for (LinkFinding& link : findings) {
      const auto& [rank, peer] = std::tie(link.slowness.rank, link.slowness.peer);
      if (slow_lines.contains(rank) || slow_lines.contains(peer)) link.candidate = false;
    }
    std::move(findings.begin(), findings.end(), std::back_inserter(all));
    std::move(lines.begin(), lines.end(), std::back_inserter(all));
  }
  return all;
}

std::map<int, double> LinkCosts::add(const StepTimes& digest) {
  if (!usable(digest, digest.ranks.size()) || digest.ranks.empty()) return {};
  if (window_.size() == kMost) window_.erase(window_.begin());
  window_.push_back(digest);
  std::map<int, double> shares;
  if (window_.size() < kFewest) return shares;
  for (const LinkFinding& found : judge_links(window_, step_of(window_), line_kind_)) {
    if (!found.candidate) continue;
    double& share = shares[found.slowness.rank];
    share = std::max(share, found.slowness.gain);
  }
  return shares;
}

}  // namespace dlaunch
