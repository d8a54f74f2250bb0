// Helpers for sockets beyond the system calls.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

// A connected, non-blocking TCP socket, or the errno of the attempt; `who` begins the error's text.
// A connection to itself counts as refused.
Result<UniqueFd> connect_socket(const sockaddr* address, socklen_t size, const std::string& who,
                                TimePoint deadline);

// The same with the first of these addresses that answers; each has its share of the time.
Result<UniqueFd> connect_to_one_of(const std::vector<SocketAddress>& addresses,
                                   const std::string& who, TimePoint deadline);

// The two halves of connect_socket(), for code with a loop: the socket may still be connecting, and
// becomes writable when that has ended.
Result<UniqueFd> begin_to_connect(const sockaddr* address, socklen_t size, const std::string& who);
Result<void> how_connected(int fd, const std::string& who);

// The abstract AF_UNIX address of a name of at most 100 bytes: it uses no disk, and ends with the
// socket bound to it. Returns its size.
socklen_t abstract_address(std::string_view name, sockaddr_un& address);

// The same for a path of any length: connect, or bind and listen (the path must not exist).
Result<UniqueFd> connect_unix_path(const std::string& path, int type);
Result<UniqueFd> listen_unix_path(const std::string& path, int type);

// A TCP connect to a free port of this host succeeds if the kernel happens to choose that very port
// as the local one: both ends are then the same socket, which receives its own bytes. Callers treat
// it as refused. (The socket also keeps the port from its future listener.)
bool connected_to_itself(int fd);

// For a TCP socket that is about to connect or to listen: if the address is a loopback one, it
// sends as fast as the other end reads. Congestion control that paces, such as bbr, only delays
// loopback traffic, which is never lost, and a socket that has once begun to pace never stops.
// Accepted sockets inherit the setting. Other addresses keep the system's choice.
void send_unpaced_on_loopback(int fd, const sockaddr* address);

// A socket may stand for a TCP one that carries its bytes in another form
// (rendezvous/tls_tunnel.h). Options and facts of the connection, here and in base/round_trip.h,
// are then those of the TCP socket, which stays open until carried_no_more(). Thread-safe.
std::uint64_t carried_by(int socket, int tcp);
void carried_no_more(std::uint64_t key);
// For a forked child, in which another thread of the parent may have been in the middle of one of
// these calls: the child has no carried sockets.
void carriers_in_child();

// The TCP socket behind `socket`, or itself. It stays open while this object exists: be brief.
class Carrier {
 public:
  explicit Carrier(int socket);
  int fd() const { return fd_; }

 private:
  std::shared_lock<std::shared_mutex> open_;
  int fd_;
};

bool is_unix_socket(int fd);

// An error of accept() and the like that ends when the process or the system has closed others.
bool lacks_descriptors(int os_errno);

// A connected TCP socket whose two ends have different addresses.
bool leads_to_other_host(int fd);

// Ends a TCP connection to another host (ETIMEDOUT) after `silence`, 2 s or more, without any sign
// from it, whether or not we have asked it anything: the host was cut off or lost its power.
// Kernels answer for stopped processes, so those connections stay. Only for connections of small
// messages: a peer that does not read and has let its window fill counts as silent. Leaves other
// connections unchanged.
void end_when_silent(int fd, Duration silence);
// For a connection to another host: an idle one sends a sign of life every half minute, so that no
// firewall or NAT on the way forgets it. Ends a connection after an hour of silence; a connection
// with end_when_silent() reports a cut much earlier.
void keep_alive(int fd);

// The kernel sends lost small messages again every 200 ms or so for a while, and then every second
// if it supports that, instead of after ever longer pauses: after a cut of a second the connection
// recovers at once, not two seconds later.
void retry_steadily(int fd);

}  // namespace dlaunch
