// WaitSamples: how long each rank waits, and how long the others wait for it, sampled over the time
// of a job: the lines of waiting.jsonl in the run folder. Samples become rarer as the job gets
// older, so that a job of any length has a few thousand. Pure.
#pragma once

#include <map>
#include <string>

#include "elastic/goodput_ledger.h"

namespace dlaunch {

class WaitSamples {
 public:
  explicit WaitSamples(TimePoint begun) : begun_(begun), last_(begun) {}

  // When the next sample is due: when hosts may have sent new spans, later after 1/500 of the job's
  // time.
  TimePoint due() const;
  // One line with its newline: the time, the seconds since the last sample, and for each rank what
  // these brought.
  std::string sample(TimePoint now, const Goodput& goodput);

 private:
  struct Waits {
    Duration waiting{}, caused{};
  };
  const TimePoint begun_;
  TimePoint last_;
  std::map<int, Waits> told_;  // by rank: since the job's beginning
};

}  // namespace dlaunch
