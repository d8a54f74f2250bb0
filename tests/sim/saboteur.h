// Saboteur: bugs planted around the cores, to check that the simulator finds them. It stands
// between JobCore and all other parts, and between the hosts and their leader, and changes their
// messages.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "elastic/job_core.h"
#include "launcher/wire/node_message.h"

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
  // Of hosts that join:
  forgotten_offer,  // a host does not offer one of its workers to the next leader
  false_ready,      // it says of a worker that it waits for a round, and it does not
  lost_report,      // an end without a leader is not reported to the next one
  uncleared,        // a host keeps the workers that the leader does not know
};
inline constexpr int kBugs = 12;
const char* to_string(Bug bug);

class Saboteur {
 public:
  explicit Saboteur(Bug bug) : bug_(bug) {}

  // Replaces an event on its way to the core.
  JobCore::Event heard(const JobCore::Event& event);
  // Replaces a host's message to its leader; none: it is lost.
  std::optional<NodeMessage> sent(TimePoint now, NodeMessage message);
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
