// MessageSockets: gives a messenger a socket to a peer when either of the two ranks first needs it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace dlaunch {

class MessageSockets {
 public:
  virtual ~MessageSockets() = default;
  // This rank needs a socket to the peer, which may be asked for again. Returns at once.
  virtual void want_socket(int peer) = 0;
  // `ring` runs whenever a socket may have come, on any thread.
  virtual void on_socket(std::function<void()> ring) = 0;
  // Cheap: whether take_sockets() may have something.
  virtual bool sockets_come() const = 0;
  // The sockets that have come since the last call, by peer. That to a wanted peer that has left is
  // at its end. An empty one: this process or the peer's has no room for more.
  virtual std::vector<std::pair<int, UniqueFd>> take_sockets() = 0;
};

}  // namespace dlaunch
