// The stream plane: collectives over connected stream sockets, one or several to each peer (TCP
// between hosts or when forced; AF_UNIX on one host). Sockets are authenticated already and carry
// nothing but this plane's frames.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "ring/call/plane.h"
#include "ring/call/roll_call.h"
#include "ring/plan/plan_rules.h"
#include "ring/stream/socket_group.h"

namespace dlaunch {

// Told after each call what came from a peer in it, and how long that took: from when the first
// byte of a frame was read to its last one. A sender has all of a frame when it begins it, so this
// is the link's time; waiting for a frame to begin is not. A frame that comes in one read takes
// none.
using LinkListener = std::function<void(int peer, std::uint64_t bytes, Duration time)>;

class StreamPlane : public Plane {
 public:
  // The longest round trip between this rank and one on another host; zero if there is none.
  virtual Duration round_trip() const = 0;
  // That of all ranks, the same value on each, between two calls. Before it is told, hosts are
  // taken for far from each other.
  virtual void plan_for(Duration round_trip) = 0;
  // Between two calls.
  virtual void tell_links(LinkListener listener) = 0;
};

// Takes calls of some of the ranks (Call::members). `call_roll` may be null: then a time-out says
// what this rank has seen by itself. The same rules on all ranks.
// `all_sockets`: uses all that lead to a rank, else as many as prove to be best.
std::unique_ptr<StreamPlane> make_stream_plane(std::unique_ptr<SocketGroup> sockets,
                                               CallRoll call_roll = nullptr, PlanRules rules = {},
                                               bool all_sockets = false);

}  // namespace dlaunch
