// Facts about sockets that have no call of their own.
#pragma once

namespace dlaunch {

// A TCP connect to a port of this host that nobody listens on succeeds if the kernel happens to
// choose that very port as the local one: both ends are then the same socket, and what is sent
// comes back. Callers treat it as refused. (It also keeps the port from whoever is to listen
// there.)
bool connected_to_itself(int fd);

}  // namespace dlaunch
