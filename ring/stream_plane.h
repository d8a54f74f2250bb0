// The stream plane: collectives over one connected stream socket per peer (TCP between hosts or
// when forced; AF_UNIX on one host). Sockets are authenticated already and carry nothing but this
// plane's frames.
#pragma once

#include <memory>

#include "base/result.h"
#include "ring/plane.h"
#include "ring/socket_group.h"

namespace dlaunch {

// Takes calls of some of the ranks (Call::members).
std::unique_ptr<Plane> make_stream_plane(std::unique_ptr<SocketGroup> sockets);

}  // namespace dlaunch
