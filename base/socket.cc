#include "base/socket.h"

#include <sys/socket.h>

#include <cstring>

namespace dlaunch {

bool connected_to_itself(int fd) {
  sockaddr_storage local{}, peer{};
  socklen_t local_size = sizeof local, peer_size = sizeof peer;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) != 0) return false;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return false;
  if (local.ss_family != AF_INET && local.ss_family != AF_INET6) return false;
  return local_size == peer_size && std::memcmp(&local, &peer, local_size) == 0;
}

}  // namespace dlaunch
