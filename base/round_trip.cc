#include "base/round_trip.h"

// In its own file: libc's <netinet/tcp.h> clashes with the kernel's, and has a shorter tcp_info.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "base/socket.h"

namespace dlaunch {

namespace {

// All zero if it is not a TCP socket.
tcp_info info_of(int fd) {
  const Carrier carrier(fd);
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(carrier.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return info;
}

}  // namespace

Duration shortest_round_trip(int fd) {
  const tcp_info info = info_of(fd);
  // Until the first sample, and on kernels without this value.
  if (info.tcpi_min_rtt == UINT32_MAX) return {};
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

bool resends_in_vain(int fd) {
  const tcp_info info = info_of(fd);
  return info.tcpi_unacked > 0 && info.tcpi_backoff >= 4;
}

}  // namespace dlaunch
