// JobDriver feeds JobCore and has its decisions carried out, in order, each after the facts that a
// later leader needs about it are written down. One thread, the pump's.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "elastic/job_core.h"
#include "elastic/pump.h"

namespace dlaunch {

// How often the time left of --timeout is written down, at the next event. The clocks of hosts
// differ, so a later leader cannot know how old a record is.
inline constexpr Duration kWritesTimeLeft = std::chrono::minutes(1);

class JobDriver {
 public:
  // Carries decisions out.
  class Effects {
   public:
    virtual ~Effects() = default;
    virtual TimePoint now() = 0;
    virtual void perform(const JobCore::StartWorkers& start) = 0;
    virtual void perform(const JobCore::StopWorkers& stop) = 0;
    virtual void perform(const JobCore::HandOn& pass) = 0;
    virtual void perform(const JobCore::Fence& fence) = 0;
    virtual void perform(const JobCore::Announce& announce) = 0;
    virtual void perform(const JobCore::AwaitEnd& what) = 0;
    virtual void perform(const JobCore::Finish& how) = 0;
    // If a later leader may have to go on: writes the record down for it, and calls `then` when
    // that is done, now or later. The actions that follow from the record wait for that.
    virtual void write_down(const JobRecord& record, std::function<void()> then);
    virtual bool writes_down() const { return false; }
    // A place for tests that meddle.
    virtual std::vector<JobCore::Action> decide(JobCore& core, const JobCore::Event& event) {
      return core.step(now(), event);
    }
  };
  // Pump and effects must outlive this object.
  JobDriver(const JobConfig& config, Pump& pump, Effects& effects);

  void feed(const JobCore::Event& event);
  const JobCore& core() const { return core_; }
  // Some actions wait for a record to be written.
  bool held_up() const { return !held_.empty(); }

 private:
  struct Held {
    int record;  // must be written before
    std::vector<JobCore::Action> actions;
  };
  void write_news();
  void release();
  void perform(const JobCore::StartWorkers& start);
  template <class Action>
  void perform(const Action& action) {
    effects_.perform(action);
  }

  JobCore core_;
  JobRecord last_;
  int asked_ = 0, written_ = 0;  // records
  std::deque<Held> held_;
  Pump& pump_;
  Effects& effects_;
};

}  // namespace dlaunch
