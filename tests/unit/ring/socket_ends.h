// What a test sees at the ends of a connection.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include "base/unique_fd.h"

namespace dlaunch {

// What one end says arrives at the other.
inline bool speak(const UniqueFd& a, const UniqueFd& b) {
  char byte = 0;
  pollfd come{b.get(), POLLIN, 0};
  return ::send(a.get(), "x", 1, MSG_NOSIGNAL) == 1 && ::poll(&come, 1, 10000) == 1 &&
         ::recv(b.get(), &byte, 1, 0) == 1 && byte == 'x';
}

}  // namespace dlaunch
