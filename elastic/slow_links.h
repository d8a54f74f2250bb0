// Finds the links between ranks that are lastingly slower than the others. Pure.
//
// A link is slow if a byte takes it twice as long as other links of its kind, by the measures of
// Comparison, and as links from the same sender and to the same receiver: if all of those are slow,
// the rank is. For links of `line_kind` the cause may be the line of the host: the verdict says so
// if all links from a rank, all to it, or all of both, are slow beside those without it. Then none
// of these links is a verdict of its own. Links that are all slow alike have nobody at fault.
//
// A slow line costs what its slowest link takes longer than the others would: links of a line work
// at the same time.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "elastic/step_times.h"

namespace dlaunch {

struct LinkFinding {
  Slowness slowness;
  bool candidate = false;  // it is slow
  bool clear = false;      // it is less than half as much too slow
};
// step: the time of one. For each rank at most one finding is about its line.
std::vector<LinkFinding> judge_links(const std::vector<StepTimes>& window, double step,
                                     int line_kind);

// What slow links cost at the moment, from the last few digests.
class LinkCosts {
 public:
  explicit LinkCosts(int line_kind) : line_kind_(line_kind) {}

  void new_round() { window_.clear(); }
  // The share of each step, by the rank whose links are slow.
  std::map<int, double> add(const StepTimes& digest);

 private:
  static constexpr std::size_t kFewest = 3, kMost = 5;  // digests

  const int line_kind_;
  std::vector<StepTimes> window_;
};

}  // namespace dlaunch
