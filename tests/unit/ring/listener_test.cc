#include "ring/links/listener.h"

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include <doctest/doctest.h>

#include "base/socket.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

std::string congestion_control(const UniqueFd& socket) {
  char name[16] = "";
  socklen_t size = sizeof name;
  REQUIRE(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0);
  return name;
}

UniqueFd tcp_socket() { return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

}  // namespace

TEST_CASE("listener: takes the first free port of a range, and says when none is left") {
  const auto any = Listener::open("127.0.0.1", false);
  REQUIRE(any);
  const std::uint16_t taken = any->tcp_endpoint().port;
  REQUIRE(taken < 65036);
  const auto last = static_cast<std::uint16_t>(taken + 500);  // others may hold some, too
  const auto behind_it = Listener::open("127.0.0.1", false, {taken, last});
  REQUIRE(behind_it);
  CHECK(behind_it->tcp_endpoint().port > taken);
  CHECK(behind_it->tcp_endpoint().port <= last);
  const auto none = Listener::open("127.0.0.1", false, {taken, taken});
  REQUIRE_FALSE(none);
  const std::string ports = std::to_string(taken) + " (DLAUNCH_PORT_RANGE) are taken";
  CHECK(none.error().what.find(ports) != std::string::npos);
}

TEST_CASE("listener: loopback connections do not pace, others keep the system's setting") {
  auto listener = Listener::open("127.0.0.1", false);
  REQUIRE(listener);
  const auto connected = connect_tcp(listener->tcp_endpoint(), steady_now() + 30s);
  REQUIRE(connected);
  pollfd come{listener->tcp_socket().get(), POLLIN, 0};
  REQUIRE(::poll(&come, 1, 30000) == 1);
  const UniqueFd accepted(::accept(listener->tcp_socket().get(), nullptr, nullptr));
  REQUIRE(accepted);
  CHECK(congestion_control(*connected) == "reno");
  CHECK(congestion_control(accepted) == "reno");

  sockaddr_in elsewhere{};
  elsewhere.sin_family = AF_INET;
  elsewhere.sin_addr.s_addr = htonl(0xc0000201);  // 192.0.2.1
  const UniqueFd fresh = tcp_socket(), other = tcp_socket();
  send_unpaced_on_loopback(other.get(), reinterpret_cast<const sockaddr*>(&elsewhere));
  CHECK(congestion_control(other) == congestion_control(fresh));
}

TEST_CASE("listener: a connection that a socket makes to itself is refused") {
  // In a network of its own, where the kernel has but one local port to choose.
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr std::uint16_t kPort = 45000;
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
    const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq up{};
    std::memcpy(up.ifr_name, "lo", 3);
    up.ifr_flags = IFF_UP;
    if (::ioctl(any.get(), SIOCSIFFLAGS, &up) != 0) ::_exit(77);
    std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
    if (!(range << kPort << " " << kPort << std::endl)) ::_exit(77);
    const auto fd = connect_tcp({"127.0.0.1", kPort}, steady_now() + 10s);
    ::_exit(!fd && fd.error().os_errno == ECONNREFUSED ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) return;  // not allowed here
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("listener: an address to which there is no route is no address") {
  CHECK(local_address_towards("127.0.0.1") == "127.0.0.1");
  CHECK(local_address_towards("no such host") == "");
}
