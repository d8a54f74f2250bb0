// What sockets need beyond their system calls.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

// A connected, non-blocking TCP socket, or the errno of the attempt; `who` begins the error's text.
// A connection to itself counts as refused.
Result<UniqueFd> connect_socket(const sockaddr* address, socklen_t size, const std::string& who,
                                TimePoint deadline);

// The abstract AF_UNIX address of a name of at most 100 bytes: nothing on disk, and gone with the
// socket that is bound to it. Returns its size.
socklen_t abstract_address(std::string_view name, sockaddr_un& address);

// The same for a path of any length: connect, or bind and listen (the path must not exist).
Result<UniqueFd> connect_unix_path(const std::string& path, int type);
Result<UniqueFd> listen_unix_path(const std::string& path, int type);

// A TCP connect to a port of this host that nobody listens on succeeds if the kernel happens to
// choose that very port as the local one: both ends are then the same socket, and what is sent
// comes back. Callers treat it as refused. (It also keeps the port from whoever is to listen
// there.)
bool connected_to_itself(int fd);

// For a TCP socket that is about to connect or to listen: where the address is a loopback one,
// sends as fast as the other end reads. Congestion control that paces, as bbr does, only holds back
// there what nothing would have lost, and a socket that has once begun to pace never stops. What is
// accepted inherits it. Other addresses are left to the system's choice.
void send_unpaced_on_loopback(int fd, const sockaddr* address);

// A socket may stand for a TCP one that carries its bytes in another form
// (rendezvous/tls_tunnel.h). Options and facts of the connection, here and in base/round_trip.h,
// are then those of the TCP socket, which stays open until carried_no_more(). Thread-safe.
std::uint64_t carried_by(int socket, int tcp);
void carried_no_more(std::uint64_t key);
// In a forked child, where another thread may have been in the middle of one of these: none is
// carried there.
void carriers_in_child();

// The TCP socket behind `socket`, or itself. Not closed while this object is there: be brief.
class Carrier {
 public:
  explicit Carrier(int socket);
  int fd() const { return fd_; }

 private:
  std::shared_lock<std::shared_mutex> open_;
  int fd_;
};

bool is_unix_socket(int fd);

// A connected TCP socket whose two ends have different addresses.
bool leads_to_other_host(int fd);

// Ends a TCP connection to another host (ETIMEDOUT) once that has said nothing at all for so long,
// from 2 s on, be it asked something or not: it was cut off or lost its power. Kernels answer for
// processes that stand still, so those are waited for. Only for connections of small messages: a
// peer that does not read and has let its window fill counts as silent. Others are left as they
// are.
void end_when_silent(int fd, Duration silence);
// To another host: what is idle says every half minute that it is there, so that no firewall or NAT
// on the way forgets it. Ends what has said nothing for an hour: who lost its peer by a cut learns
// of it much earlier, by a connection that end_when_silent() watches.
void keep_alive(int fd);

// What is lost of a few small messages is sent again every 200 ms or so for a while, and every
// second from then on where the kernel can be told so, not after ever longer pauses: a cut of a
// second is over soon after, not two seconds later.
void retry_steadily(int fd);

}  // namespace dlaunch
