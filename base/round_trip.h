// What the kernel knows about the distance to the other end of a TCP connection.
#pragma once

#include "base/clock.h"

namespace dlaunch {

// The shortest round trip of the last minutes; zero where there was none or it is no such socket.
Duration shortest_round_trip(int fd);

// Something that was sent has been sent again at least four times, each after twice the time, and
// is not acknowledged.
bool resends_in_vain(int fd);

}  // namespace dlaunch
