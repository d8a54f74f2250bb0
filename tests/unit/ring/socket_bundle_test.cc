#include "ring/stream/socket_bundle.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

// Both ends of a stream over so many sockets with small buffers, so that writes are short.
struct BundlePair {
  explicit BundlePair(int sockets) {
    for (int i = 0; i < sockets; ++i) {
      int fds[2];
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
      const int small = 4608;
      for (const int fd : fds) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
      ends.emplace_back(fds[0], fds[1]);
      if (i == 0) {
        from = std::make_unique<SocketBundle>(UniqueFd(fds[0]));
        to = std::make_unique<SocketBundle>(UniqueFd(fds[1]));
      } else {
        from->add(UniqueFd(fds[0]));
        to->add(UniqueFd(fds[1]));
      }
    }
    from->use(static_cast<std::size_t>(sockets));
  }
  std::unique_ptr<SocketBundle> from, to;
  std::vector<std::pair<int, int>> ends;
};

void mark_all_writable(SocketBundle& bundle) {
  for (std::size_t i = 0; i < bundle.sockets(); ++i) bundle.mark(i, false, true);
}

// Some of what comes, in reads of `room` bytes.
std::string read_from(SocketBundle& bundle, std::size_t room) {
  std::string bytes(room, '\0');
  const iovec into{bytes.data(), bytes.size()};
  bundle.mark_all_readable();
  const auto got = bundle.receive(&into, 1, room);
  REQUIRE(got);
  bytes.resize(got->bytes);
  return bytes;
}

std::size_t write_to(SocketBundle& bundle, const std::string& bytes) {
  // In two pieces of memory, as a frame and its payload.
  const std::size_t half = bytes.size() / 2;
  char* const data = const_cast<char*>(bytes.data());
  const iovec pieces[] = {{data, half}, {data + half, bytes.size() - half}};
  mark_all_writable(bundle);
  const auto sent = bundle.send(pieces, 2, bytes.size());
  REQUIRE(sent);
  return *sent;
}

}  // namespace

TEST_CASE("a stream over several sockets arrives unchanged, however many are in use") {
  for (const int sockets : {1, 2, 3, 8}) {
    std::mt19937 random(static_cast<unsigned>(sockets));
    BundlePair pair(sockets);
    std::string sent, received, rest;
    while (received.size() < (1 << 20)) {
      pair.from->use(1 + random() % static_cast<unsigned>(sockets));
      while (rest.size() < random() % 100'000) rest += static_cast<char>(random());
      const std::size_t taken = rest.empty() ? 0 : write_to(*pair.from, rest);
      sent += rest.substr(0, taken);
      rest.erase(0, taken);
      for (unsigned reads = random() % 40; reads > 0; --reads) {
        received += read_from(*pair.to, 1 + random() % 10'000);
      }
      REQUIRE(received == sent.substr(0, received.size()));
    }
  }
}

TEST_CASE(
    "what comes early stays in its socket, which is not asked for more until it is its turn") {
  BundlePair pair(2);
  const auto write_piece = [&](std::size_t socket, std::uint64_t position, const char* text) {
    char piece[12 + 3];
    const std::uint32_t length = 3;
    std::memcpy(piece, &position, sizeof position);
    std::memcpy(piece + 8, &length, sizeof length);
    std::memcpy(piece + 12, text, 3);
    REQUIRE(write(pair.ends[socket].first, piece, sizeof piece) == sizeof piece);
  };
  write_piece(1, 3, "def");
  CHECK(read_from(*pair.to, 10).empty());
  CHECK(pair.to->awaits(0));
  CHECK(!pair.to->awaits(1));
  write_piece(0, 0, "abc");
  CHECK(read_from(*pair.to, 10) == "abc");
  CHECK(pair.to->awaits(1));
  CHECK(read_from(*pair.to, 10) == "def");
}

TEST_CASE("a stream over several sockets ends when a needed socket ends") {
  BundlePair pair(2);
  CHECK(write_to(*pair.from, "abc") == 3);
  pair.from.reset();
  CHECK(read_from(*pair.to, 10) == "abc");
  char byte;
  const iovec into{&byte, 1};
  pair.to->mark_all_readable();
  const auto got = pair.to->receive(&into, 1, 1);
  REQUIRE(got);
  CHECK(got->ended);
  CHECK(got->os_errno == 0);
}

TEST_CASE("a socket may end before the last bytes of another socket arrive") {
  for (const std::size_t closed : {0u, 1u}) {
    BundlePair pair(2);
    char bytes[10];
    const iovec into{bytes, sizeof bytes};
    const auto ended = [&] {
      pair.to->mark_all_readable();
      const auto got = pair.to->receive(&into, 1, sizeof bytes);
      REQUIRE(got);
      CHECK(got->bytes == 0);
      return got->ended;
    };
    shutdown(pair.ends[closed].first, SHUT_WR);
    CHECK_FALSE(ended());
    CHECK_FALSE(pair.to->awaits(closed));
    CHECK(pair.to->awaits(1 - closed));
    const char piece[] = "\0\0\0\0\0\0\0\0\3\0\0\0abc";
    const ssize_t size = sizeof piece - 1;
    REQUIRE(write(pair.ends[1 - closed].first, piece, sizeof piece - 1) == size);
    CHECK(read_from(*pair.to, 10) == "abc");
    CHECK_FALSE(ended());
    shutdown(pair.ends[1 - closed].first, SHUT_WR);
    CHECK(ended());
  }
}

TEST_CASE("malformed pieces are refused") {
  for (const std::uint32_t length : {0u, 1u << 20}) {
    BundlePair pair(2);
    char header[12] = {};
    std::memcpy(header + 8, &length, sizeof length);
    REQUIRE(write(pair.ends[1].first, header, sizeof header) == sizeof header);
    char byte;
    const iovec into{&byte, 1};
    const auto got = pair.to->receive(&into, 1, 1);
    REQUIRE(!got);
    CHECK(got.error().code == Errc::protocol);
  }
}
