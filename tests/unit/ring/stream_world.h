// Ranks as threads over real sockets, for the tests of the stream plane and of the messenger.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "ring/stream/messenger.h"
#include "ring/stream/stream_plane.h"

namespace dlaunch {

enum class Wire { unix_socket, tcp };

// `End` is what each rank has at its sockets: a Plane or a Messenger.
template <class End>
class SocketWorld {
 public:
  static constexpr std::uint64_t kRound = 3;

  // buffer_bytes > 0: tiny socket buffers, so that writes are short.
  explicit SocketWorld(int ranks, Wire wire = Wire::unix_socket, int buffer_bytes = 0,
                       const StreamOptions& options = {})
      : flags(ranks), ends(ranks) {
    std::vector<std::vector<UniqueFd>> sockets(ranks);
    for (auto& row : sockets) row.resize(ranks);
    for (int a = 0; a < ranks; ++a) {
      for (int b = a + 1; b < ranks; ++b) {
        int pair[2];
        connect_pair(wire, pair);
        for (const int fd : pair) {
          if (buffer_bytes == 0) continue;
          setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
          setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
        }
        sockets[a][b].reset(pair[0]);
        sockets[b][a].reset(pair[1]);
      }
    }
    for (int r = 0; r < ranks; ++r) {
      flags[r] = std::make_unique<AbortFlag>();
      raw.emplace_back();
      for (const auto& fd : sockets[r]) raw[r].push_back(fd.get());
      auto group = SocketGroup::open(r, ranks, kRound, std::move(sockets[r]), *flags[r], options);
      REQUIRE(group);
      if constexpr (std::is_same_v<End, Plane>) {
        ends[r] = make_stream_plane(std::move(*group));
      } else {
        ends[r] = std::make_unique<End>(std::move(*group));
      }
    }
  }

  int ranks() const { return static_cast<int>(ends.size()); }

  // Runs work(rank) for all ranks at once and waits for them. doctest's checks are not for threads:
  // work returns what is to be checked.
  template <class T>
  std::vector<T> each(const std::function<T(int)>& work) {
    static_assert(!std::is_same_v<T, bool>, "several bools are in one byte");
    std::vector<T> results(ends.size());
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks(); ++r) {
      threads.emplace_back([&, r] { results[r] = work(r); });
    }
    for (auto& thread : threads) thread.join();
    return results;
  }

  std::vector<std::unique_ptr<AbortFlag>> flags;
  std::vector<std::unique_ptr<End>> ends;  // reset one: that rank has died
  std::vector<std::vector<int>> raw;       // raw[a][b]: rank a's descriptor to rank b

 private:
  static void connect_pair(Wire wire, int (&pair)[2]) {
    if (wire == Wire::unix_socket) {
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
      return;
    }
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener.get(), generic, size) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    REQUIRE(getsockname(listener.get(), generic, &size) == 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(pair[0], generic, size) == 0);
    pair[1] = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
    REQUIRE(pair[1] >= 0);
  }
};

using StreamWorld = SocketWorld<Plane>;
using MessageWorld = SocketWorld<Messenger>;

// What the calling thread of rank r got, in words; "" for success.
inline std::string words(const Result<void>& outcome) {
  return outcome ? std::string() : outcome.error().what;
}

// A failure of this kind that names this rank.
inline bool is(const Result<void>& outcome, Errc code, int rank) {
  return !outcome && outcome.error().code == code && outcome.error().rank == rank;
}

}  // namespace dlaunch
