// JobDriver feeds JobCore and has its decisions carried out, in order. One thread, the pump's.
#pragma once

#include <vector>

#include "elastic/job_core.h"
#include "elastic/pump.h"

namespace dlaunch {

class JobDriver {
 public:
  // Who carries decisions out.
  class Hands {
   public:
    virtual ~Hands() = default;
    virtual TimePoint now() = 0;
    virtual void perform(const JobCore::StartWorkers& start) = 0;
    virtual void perform(const JobCore::StopWorkers& stop) = 0;
    virtual void perform(const JobCore::HandOn& pass) = 0;
    virtual void perform(const JobCore::Fence& fence) = 0;
    virtual void perform(const JobCore::Announce& announce) = 0;
    virtual void perform(const JobCore::Finish& how) = 0;
    // A place for those who meddle.
    virtual std::vector<JobCore::Action> decide(JobCore& core, const JobCore::Event& event) {
      return core.step(now(), event);
    }
  };
  // Pump and hands must outlive this object.
  JobDriver(const JobConfig& config, Pump& pump, Hands& hands);

  void feed(const JobCore::Event& event);
  const JobCore& core() const { return core_; }

 private:
  JobCore core_;
  Pump& pump_;
  Hands& hands_;
};

}  // namespace dlaunch
