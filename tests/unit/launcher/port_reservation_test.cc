#include "launcher/process/port_reservation.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "base/socket.h"

using namespace dlaunch;

namespace {

// 0, or the errno of a listener on 127.0.0.1:port.
int listen_on(std::uint16_t port, bool reuse, UniqueFd& fd) {
  fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (reuse) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const bool ok = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                  ::listen(fd.get(), 1) == 0;
  return ok ? 0 : errno;
}

}  // namespace

TEST_CASE("a reserved port is free only for a listener with SO_REUSEADDR") {
  auto held = reserve_port("127.0.0.1", 0);
  REQUIRE(held);
  CHECK(held->port != 0);
  UniqueFd stranger, worker;
  CHECK(listen_on(held->port, false, stranger) == EADDRINUSE);
  CHECK(listen_on(held->port, true, worker) == 0);
}

TEST_CASE("two reservations never share a port, whether chosen or asked for") {
  std::vector<PortReservation> all;
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 50; ++i) {
    auto held = reserve_port("127.0.0.1", 0);
    REQUIRE(held);
    CHECK(ports.insert(held->port).second);
    all.push_back(std::move(*held));
  }
  const auto again = reserve_port("127.0.0.1", all.front().port);
  REQUIRE_FALSE(again);
  CHECK(again.error().os_errno == EADDRINUSE);
  CHECK(again.error().what.find("another dlaunch job has it") != std::string::npos);

  const std::uint16_t freed = all.back().port;
  all.pop_back();
  CHECK(reserve_port("127.0.0.1", freed));
}

TEST_CASE("a port with a listener is refused, by name") {
  UniqueFd listener;
  REQUIRE(listen_on(0, false, listener) == 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const std::uint16_t port = ntohs(address.sin_port);
  const auto held = reserve_port("127.0.0.1", port);
  REQUIRE_FALSE(held);
  CHECK(held.error().what ==
        "MASTER_PORT: bind to 127.0.0.1:" + std::to_string(port) + ": Address already in use");
}

TEST_CASE("a program that takes all abstract names does not prevent a reservation") {
  // In a network of its own, where the kernel has few ports to choose from.
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr int kFirst = 45000, kLast = 45003;
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
    std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
    if (!(range << kFirst << " " << kLast << std::endl)) ::_exit(77);
    for (int port = kFirst; port <= kLast; ++port) {
      sockaddr_un name;
      const socklen_t size = abstract_address("dlaunch-master-" + std::to_string(port), name);
      const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      if (::bind(fd, reinterpret_cast<sockaddr*>(&name), size) != 0) ::_exit(1);
    }
    const auto held = reserve_port("127.0.0.1", 0);
    ::_exit(held && held->port >= kFirst && held->port <= kLast ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) return;  // not allowed here
  CHECK(WEXITSTATUS(status) == 0);
}
