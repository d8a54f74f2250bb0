// Arrivals: what a rank that gives up waiting for the others knows of them, in words. Pure.
#pragma once

#include <string>

#include "base/rank_set.h"

namespace dlaunch {

struct Arrivals {
  int ranks = 0;
  bool in_group = false;  // the sets are of ranks of the job all the same
  RankSet missing;        // have not arrived
  RankSet unknown;        // may have arrived or not: the store could not be asked,
  std::string why;        // because of this
  RankSet unconnected;    // have arrived, but there is no connection
};

// "rank 1-2 of 5 have not arrived; of rank 4 this is not known: store at h:29500: …"
std::string describe(const Arrivals& arrivals);

}  // namespace dlaunch
