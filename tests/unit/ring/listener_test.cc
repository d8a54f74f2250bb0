#include "ring/listener.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

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

TEST_CASE(
    "listener: a crowd of idle strangers delays a member a little, and does not keep it out") {
  auto listener = Listener::open("127.0.0.1", false);
  REQUIRE(listener);
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 300; ++i) {
    auto stranger = connect_tcp(listener->tcp_endpoint(), steady_now() + 10s);
    REQUIRE(stranger);
    crowd.push_back(std::move(*stranger));
  }
  const Secret secret;
  HandshakeIdentity expected{Purpose::ring_link, "job", 1, -1, 0, "rank 0"};
  Result<void> accepted;
  std::thread acceptor([&] {
    const auto take = [](UniqueFd, const HandshakeIdentity&, bool) { return true; };
    accepted = listener->accept_until(secret, expected, take, steady_now() + 20s);
  });
  const auto begin = steady_now();
  const auto member = connect_tcp(listener->tcp_endpoint(), steady_now() + 10s);
  Result<HandshakeIdentity> proven = Error{};
  if (member) {
    proven = handshake_connect(member->get(), secret,
                               {Purpose::ring_link, "job", 1, 1, 0, "rank 1"}, steady_now() + 10s);
  }
  acceptor.join();
  CHECK(proven);
  CHECK(accepted);
  CHECK(steady_now() - begin < 2s);  // 200 ms for each 64
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
