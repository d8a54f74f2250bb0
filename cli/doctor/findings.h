// The conclusions of `dlaunch doctor`. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/doctor/host_facts.h"

namespace dlaunch {

// Between two hosts, by their indices.
struct PairFacts {
  int a = 0, b = 0;
  double round_trip_s = 0;  // the minimum of a few
  double bytes_per_s = 0;   // from a to b
  double bytes_per_s_back = 0;
  double slower() const { return bytes_per_s < bytes_per_s_back ? bytes_per_s : bytes_per_s_back; }
};

struct Finding {
  bool bad = false;  // true: a job will fail, or be slow as a whole; false: it may
  std::string what;  // with its hosts and figures
  std::string fix;
};

// Of at least one value; of an even number the greater of the two in the middle.
double upper_median(std::vector<double> of);

// The bad ones come first.
std::vector<Finding> examine(const std::vector<HostFacts>& hosts,
                             const std::vector<PairFacts>& pairs);

// The schedule of pairs: the pairs of each inner list are measured at the same time. Few hosts:
// one pair after the other, so that pairs do not share anything; many: n - 1 rounds (the circle
// method), so that it ends.
std::vector<std::vector<std::pair<int, int>>> pair_rounds(int hosts);

// The results for people: hosts, pairs, findings.
std::string report_of(const std::vector<HostFacts>& hosts, const std::vector<PairFacts>& pairs,
                      const std::vector<Finding>& findings);

}  // namespace dlaunch
