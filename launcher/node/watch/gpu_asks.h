// GpuAsks decides when this host's NVML is asked for figures, and what the user learns about that.
// An answer that is late or wrong costs a pause, not the figures of the whole job: a driver that is
// busy answers again later. Pure.
#pragma once

#include <string>

#include "base/clock.h"

namespace dlaunch {

class GpuAsks {
 public:
  enum class Answer {
    figures,
    none,    // this host has no NVML, and will have none
    failed,  // late, or no figures
  };

  // No more than one question is under way. Call answered() for each one that begins.
  bool may_ask(TimePoint now) const { return !asks_ && !never_ && now >= next_; }
  void begins() { asks_ = true; }
  // A line for the user; "": there is nothing new. how: how the question failed, in words.
  std::string answered(TimePoint now, Answer answer, const std::string& how = {});
  // There are no figures now, and none are on their way.
  bool missing() const { return never_ || failing_; }

 private:
  std::string failed(TimePoint now, const std::string& how);

  bool asks_ = false, never_ = false;
  bool failing_ = false;
  TimePoint failed_at_{};  // the last time
  Duration pause_{};       // after that
  TimePoint next_{};       // when that is over
};

}  // namespace dlaunch
