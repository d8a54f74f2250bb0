#include "cli/ctl/leader_wait.h"

#include <algorithm>

namespace dlaunch::ctl {
namespace {

// So long a dlaunch of the job that changes its leader may not answer here.
constexpr Duration kChange = std::chrono::seconds(2);
constexpr Duration kElsewhere = std::chrono::minutes(1);

}  // namespace

LeaderWait::LeaderWait(TimePoint now, const Known& known) : until_(known.until) {
  const Duration otherwise = known.elsewhere ? kElsewhere : kChange;
  by_ = std::min(until_, deadline_after(now, known.hosts_wait.value_or(otherwise)));
}

void LeaderWait::seen(TimePoint now) {
  by_ = std::min(until_, std::max(by_, deadline_after(now, kChange)));
}

}  // namespace dlaunch::ctl
