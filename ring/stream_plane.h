// The stream plane: collectives over connected stream sockets, one or several to each peer (TCP
// between hosts or when forced; AF_UNIX on one host). Sockets are authenticated already and carry
// nothing but this plane's frames.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "ring/plan_rules.h"
#include "ring/plane.h"
#include "ring/roll_call.h"
#include "ring/socket_group.h"

namespace dlaunch {

class StreamPlane : public Plane {
 public:
  // The longest round trip between this rank and one on another host; zero if there is none.
  virtual Duration round_trip() const = 0;
  // That of all ranks, the same value on each, between two calls. Before it is told, hosts are
  // taken for far from each other.
  virtual void plan_for(Duration round_trip) = 0;
};

// Takes calls of some of the ranks (Call::members). `call_roll` may be null: then a time-out says
// what this rank has seen by itself. The same rules on all ranks.
// `all_sockets`: uses all that lead to a rank, else as many as prove to be best.
std::unique_ptr<StreamPlane> make_stream_plane(std::unique_ptr<SocketGroup> sockets,
                                               CallRoll call_roll = nullptr, PlanRules rules = {},
                                               bool all_sockets = false);

}  // namespace dlaunch
