// Timeline: the future events, in order of time; among simultaneous ones, those posted first come
// first.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "base/clock.h"

namespace dlaunch::sim {

struct Happening {
  enum Kind {
    step,       // a worker's own delay is over; a: its turn; an old turn is void
    met,        // it learns that the meeting is complete; a: round
    summed,     // it learns of a sum; a: round, b: which collective
    waited,     // it has waited in vain for the others; a: round
    peer_lost,  // it sees the end of a link; a: round, b: rank
    to_agent,   // a: left, version
    told,       // a RoundNotice reaches it; a: round, b: rank, c: size
    fenced,     // a FenceNotice; a: round, b: lost
    ends,       // a signal has its effect
    goes_on,    // SIGCONT
    reap,       // the agent sees its end
    fault,      // a: which
    node_back,  // a: which
    take_over,  // another leader is there
    attempt,    // a node without contact tries to reach the leader; a: which
  };
  TimePoint at{};
  std::uint64_t order = 0;
  Kind kind{};
  int worker = 0;
  int a = 0, b = 0, c = 0;
  std::uint64_t version = 0;
};

class Timeline {
 public:
  void add(Happening what) {
    what.order = ++last_;
    queue_.push(what);
  }
  bool empty() const { return queue_.empty(); }
  TimePoint next() const { return queue_.empty() ? kNever : queue_.top().at; }
  Happening take() {
    const Happening first = queue_.top();
    queue_.pop();
    return first;
  }

 private:
  struct Later {
    bool operator()(const Happening& a, const Happening& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<Happening, std::vector<Happening>, Later> queue_;
  std::uint64_t last_ = 0;
};

}  // namespace dlaunch::sim
