// Saboteur: bugs planted around the core, to check that the simulator finds them. It stands between
// JobCore and all other parts, and changes their messages.
#pragma once

#include <set>
#include <vector>

#include "elastic/job_core.h"

namespace dlaunch::sim {

enum class Bug {
  none,
  lost_fences,       // never delivered
  believed_old,      // counts reports about an older round as news
  reused_number,     // of a round
  clock_back,        // a wall clock
  dead_member,       // announces an ended member
  spare_twice,       // two ranks for one process
  forgotten_member,  // a roster that omits a waiting worker
};
inline constexpr int kBugs = 8;
const char* to_string(Bug bug);

class Saboteur {
 public:
  explicit Saboteur(Bug bug) : bug_(bug) {}

  // Replaces an event on its way to the core.
  JobCore::Event heard(const JobCore::Event& event);
  // Replaces the core's actions.
  std::vector<JobCore::Action> said(std::vector<JobCore::Action> actions);
  // The error of the clock.
  Duration clock_error(TimePoint now) const;

 private:
  void note(const JobCore::Event& event);
  void change(JobCore::Announce& announce);

  const Bug bug_;
  std::vector<int> told_;  // by slot: its round
  int last_round_ = 0;     // announced
  std::set<Slot> spares_;
  std::set<Slot> down_;
};

}  // namespace dlaunch::sim
