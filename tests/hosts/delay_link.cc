// Joins two network interfaces by a cable on which every packet takes MICROSECONDS, either way.
// Prints "up" once it is plugged in. Needs the right to open packet sockets.
// usage: delay_link INTERFACE INTERFACE MICROSECONDS
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// Packets that the kernel leaves to the network card to cut or to checksum arrive unfinished, with
// a header that lists the work still to do; we send them on with that header.
constexpr std::size_t kMaxPacket = 96 << 10;
constexpr std::size_t kMaxHeld = 256 << 20;  // bytes on the way in one direction; drops more
constexpr int kSocketBuffer = 64 << 20;
constexpr int kBatch = 64;  // packets to take in before letting out those that are due

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

struct Direction {
  int from, to;
  std::deque<Packet> way{};
  std::size_t held = 0;
};

int open_interface(const char* name) {
  const unsigned index = ::if_nametoindex(name);
  const int fd = ::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (index == 0 || fd < 0) return -1;
  const int on = 1;
  const bool set =
      ::setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) == 0 &&
      ::setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) == 0 &&
      ::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBuffer, sizeof kSocketBuffer) == 0 &&
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBuffer, sizeof kSocketBuffer) == 0;
  packet_mreq all{};
  all.mr_ifindex = static_cast<int>(index);
  all.mr_type = PACKET_MR_PROMISC;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  if (!set || ::setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) != 0 ||
      ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return -1;
  }
  return fd;
}

void take_in(Direction& direction, Clock::duration delay) {
  static char buffer[kMaxPacket];
  for (int i = 0; i < kBatch; ++i) {
    const ssize_t n = ::recv(direction.from, buffer, sizeof buffer, 0);
    if (n < 0) return;
    const auto bytes = static_cast<std::size_t>(n);
    if (direction.held + bytes > kMaxHeld) continue;
    direction.held += bytes;
    direction.way.push_back({Clock::now() + delay, {buffer, buffer + n}});
  }
}

// Packets that the interface rejects are lost, as on a cable.
void let_out(Direction& direction, Clock::time_point now) {
  while (!direction.way.empty() && direction.way.front().due <= now) {
    const auto& bytes = direction.way.front().bytes;
    (void)::send(direction.to, bytes.data(), bytes.size(), 0);
    direction.held -= bytes.size();
    direction.way.pop_front();
  }
}

void wait(Direction (&directions)[2]) {
  auto until = Clock::time_point::max();
  for (const auto& direction : directions) {
    if (!direction.way.empty()) until = std::min(until, direction.way.front().due);
  }
  pollfd fds[] = {{directions[0].from, POLLIN, 0}, {directions[1].from, POLLIN, 0}};
  if (until == Clock::time_point::max()) {
    ::poll(fds, 2, -1);
    return;
  }
  const auto left = std::max(until - Clock::now(), Clock::duration::zero());
  const timespec time{.tv_sec = left / std::chrono::seconds(1),
                      .tv_nsec = (left % std::chrono::seconds(1)).count()};
  ::ppoll(fds, 2, &time, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const std::chrono::microseconds delay(std::atol(argv[3]));
  const int a = open_interface(argv[1]), b = open_interface(argv[2]);
  if (a < 0 || b < 0) {
    std::perror("delay_link");
    return 1;
  }
  ::prctl(PR_SET_TIMERSLACK, 1L);
  std::puts("up");
  std::fflush(stdout);
  Direction directions[2] = {{a, b}, {b, a}};
  while (true) {
    wait(directions);
    for (auto& direction : directions) take_in(direction, delay);
    for (auto& direction : directions) let_out(direction, Clock::now());
  }
}
