// Arrivals: what a rank that gives up waiting knows of the other ranks, in words. Pure.
#pragma once

#include <string>

#include "base/rank_set.h"

namespace dlaunch {

struct Arrivals {
  int ranks = 0;
  bool in_group = false;  // the sets are still ranks of the job
  RankSet missing;        // have not arrived
  RankSet unknown;        // may have arrived or not: the store did not answer,
  std::string why;        // because of this
  RankSet unconnected;    // have arrived, but there is no connection
};

// "rank 1-2 of 5 have not arrived; of rank 4 this is not known: store at h:29500: …"
std::string describe(const Arrivals& arrivals);

}  // namespace dlaunch
