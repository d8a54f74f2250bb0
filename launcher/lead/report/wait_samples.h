// WaitSamples: how long each rank waits, and how long the others wait for it, each with the main
// cause, sampled over the time of a job: the lines of waiting.jsonl in the run folder. Samples
// become rarer as the job gets older, so that a job of any length has a few thousand. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "elastic/goodput_ledger.h"

namespace dlaunch {

// Those of a rank, by culprit and cause.
using WaitSums = std::map<std::pair<int, WaitCause>, Duration>;

class WaitSamples {
 public:
  explicit WaitSamples(TimePoint begun) : begun_(begun), last_(begun) {}

  // When the next sample is due: when hosts may have sent new spans, later after 1/500 of the job's
  // time.
  TimePoint due() const;
  // One line with its newline: the time, the seconds since the last sample, and for each rank what
  // these brought. A rank that waited has the cause that took most of its waits, and the rank that
  // it waited for most; a rank for which others waited has the cause of most of these waits.
  std::string sample(TimePoint now, const Goodput& goodput);

 private:
  const TimePoint begun_;
  TimePoint last_;
  std::map<int, WaitSums> told_;  // by rank: since the job's beginning
};

}  // namespace dlaunch
