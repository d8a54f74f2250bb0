// The stream plane: collectives over connected stream sockets, one or several to each peer (TCP
// between hosts or when forced; AF_UNIX on one host). The sockets are already authenticated and
// carry only this plane's frames.
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

// Called after each call with the bytes from a peer in it, and their time: from the first byte of
// each frame to its last one. A sender has the whole frame when it begins to send, so this is the
// link's time, without the wait for a frame to begin. A frame that comes in one read takes no time.
using LinkListener = std::function<void(int peer, std::uint64_t bytes, Duration time)>;

class StreamPlane : public Plane {
 public:
  // Sets the round trip and the racks of all ranks (null: they do not matter), and whether hosts
  // have several of them, the same values on each, between two calls. Before, the plane assumes
  // that hosts are far from each other.
  virtual void plan_for(Duration round_trip, std::shared_ptr<const RankGroups> racks,
                        bool several_on_host) = 0;
  // Call it between two calls.
  virtual void tell_links(LinkListener listener) = 0;
};

// Takes calls of some of the ranks (Call::members). `call_roll` may be null: then a time-out names
// only what this rank has seen itself. All ranks must have the same rules. `all_sockets`: uses all
// sockets to a rank, else the number that proves to be best.
std::unique_ptr<StreamPlane> make_stream_plane(std::unique_ptr<SocketGroup> sockets,
                                               CallRoll call_roll = nullptr, PlanRules rules = {},
                                               bool all_sockets = false);

}  // namespace dlaunch
