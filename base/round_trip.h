// The kernel's knowledge about the distance to the other end of a TCP connection.
#pragma once

#include "base/clock.h"

namespace dlaunch {

// The shortest round trip of the last minutes; zero if there was none or it is not a TCP socket.
Duration shortest_round_trip(int fd);

// True: the kernel has sent some data again at least four times, each after twice the time, without
// an acknowledgement.
bool resends_in_vain(int fd);

}  // namespace dlaunch
