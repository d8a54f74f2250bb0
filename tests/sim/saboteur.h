// Saboteur: bugs that are planted around the core, to see that the simulator finds them. It stands
// between JobCore and everybody else, and changes what either hears.
#pragma once

#include <set>
#include <vector>

#include "elastic/job_core.h"

namespace dlaunch::sim {

enum class Bug {
  none,
  lost_fences,       // never delivered
  believed_old,      // what is said of an older round is taken for news
  reused_number,     // of a round
  clock_back,        // a wall clock
  dead_member,       // who has ended is announced
  spare_twice,       // two ranks for one process
  forgotten_member,  // a roster without one of those who wait
};
inline constexpr int kBugs = 8;
const char* to_string(Bug bug);

class Saboteur {
 public:
  explicit Saboteur(Bug bug) : bug_(bug) {}

  // In place of an event: what the core hears.
  JobCore::Event heard(const JobCore::Event& event);
  // In place of what the core said.
  std::vector<JobCore::Action> said(std::vector<JobCore::Action> actions);
  // By how much the clock is wrong.
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
