// PeerSockets: gives a messenger or a plane its sockets to a peer when one of the two ranks first
// sends to the other.
#pragma once

#include <functional>
#include <vector>

#include "base/unique_fd.h"

namespace dlaunch {

// To one peer. `more`: further sockets, as many as on its side.
struct NewSockets {
  int peer = -1;
  UniqueFd first{};
  std::vector<UniqueFd> more{};
};

class PeerSockets {
 public:
  virtual ~PeerSockets() = default;
  // This rank sends to the peer: it needs sockets. Returns at once; idempotent.
  virtual void want_socket(int peer) = 0;
  // This rank receives from the peer, which will want the sockets, or leave. Likewise.
  virtual void await_socket(int peer) = 0;
  // `ring` runs whenever sockets may have come, on any thread.
  virtual void on_socket(std::function<void()> ring) = 0;
  // Cheap: whether take_sockets() may have something.
  virtual bool sockets_come() const = 0;
  // The sockets that have come since the last call. Those to a peer that is wanted or awaited
  // and has left are at their end. An empty `first`: this process or the peer's has no room for
  // more.
  virtual std::vector<NewSockets> take_sockets() = 0;
};

}  // namespace dlaunch
