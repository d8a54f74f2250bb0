// The parts of calibrate() in which two threads talk to each other.
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "base/unique_fd.h"
#include "cli/bench/calibrate.h"

namespace bench {
namespace {

constexpr int kTurnRepeats = 5;

// A word in a cache line of its own.
struct alignas(64) Line {
  std::atomic<std::uint32_t> word{0};
};

// Two threads, on the first two cores, take turns; returns half of a turn and its answer, in
// microseconds.
template <class Say, class Hear>
double ping_pong_us(const std::vector<int>& cores, std::uint32_t turns, Say say, Hear hear) {
  Line there, back;
  std::jthread other([&] {
    pin(cores[1 % cores.size()]);
    for (std::uint32_t i = 1; i <= turns * kTurnRepeats; ++i) {
      hear(there.word, i);
      say(back.word, i);
    }
  });
  std::vector<double> times;
  std::jthread one([&] {
    pin(cores[0]);
    for (std::uint32_t i = 1; i <= turns * kTurnRepeats;) {
      const double started = now_us();
      for (const std::uint32_t end = i + turns; i < end; ++i) {
        say(there.word, i);
        hear(back.word, i);
      }
      times.push_back((now_us() - started) / turns / 2);
    }
  });
  one.join();
  other.join();
  return median(times);
}

void futex(std::atomic<std::uint32_t>& word, int op, std::uint32_t value) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), op | FUTEX_PRIVATE_FLAG, value,
            nullptr, nullptr, 0);
}

dlaunch::Error takes_two_cores() {
  return {dlaunch::Errc::unsupported, "it needs two usable cores"};
}

dlaunch::Error failed(const char* what) { return dlaunch::errno_error(what, errno); }

// Two ends of one connection to ourselves.
struct Ends {
  dlaunch::UniqueFd a, b;
};
dlaunch::Result<Ends> connect_loopback() {
  const dlaunch::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return failed("TCP socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), any, &length) != 0) {
    return failed("listen on 127.0.0.1");
  }
  Ends ends;
  ends.a = dlaunch::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!ends.a || ::connect(ends.a.get(), any, length) != 0) return failed("connect to 127.0.0.1");
  ends.b = dlaunch::UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!ends.b) return failed("accept on 127.0.0.1");
  for (const int fd : {ends.a.get(), ends.b.get()}) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return ends;
}

bool send_all(int fd, const std::vector<char>& piece, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, piece.data(), std::min(piece.size(), bytes), MSG_NOSIGNAL);
    if (sent < 0) return false;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, std::vector<char>& piece, std::size_t bytes, int flags) {
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, piece.data(), std::min(piece.size(), bytes), flags);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) return false;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// The median time of sending so many bytes from the first core to the second and receiving one
// byte back. With a core for each, a few bytes are polled for: waking a sleeper costs more than
// carrying them.
dlaunch::Result<double> exchange_us(const Ends& ends, const std::vector<int>& cores,
                                    std::size_t bytes, int times) {
  constexpr std::size_t kPiece = 256 << 10;
  const int flags = bytes < kPiece && cores.size() > 1 ? MSG_DONTWAIT : 0;
  const auto answer = [&](int fd) {
    std::vector<char> piece(kPiece);
    for (int i = 0; i < times; ++i) {
      if (!receive_all(fd, piece, bytes, flags) || !send_all(fd, piece, 1)) return;
    }
  };
  std::vector<double> all;
  int error = 0;
  const auto ask = [&](int fd) {
    std::vector<char> piece(kPiece);
    for (int i = 0; i < times && error == 0; ++i) {
      const double started = now_us();
      if (!send_all(fd, piece, bytes) || !receive_all(fd, piece, 1, flags)) error = errno;
      all.push_back(now_us() - started);
    }
    if (error != 0) ::shutdown(fd, SHUT_RDWR);  // lets the other thread end
  };
  {
    const std::jthread second([&] { pin(cores[1 % cores.size()]), answer(ends.b.get()); });
    const std::jthread first([&] { pin(cores[0]), ask(ends.a.get()); });
  }
  if (error != 0) return dlaunch::errno_error("TCP over 127.0.0.1", error);
  return median(all);
}

// A waiting thread sleeps. With one core the turn includes the switch to the other thread.
double sleepers_turn_us(const std::vector<int>& cores) {
  return ping_pong_us(
      cores, 200,
      [](std::atomic<std::uint32_t>& word, std::uint32_t i) {
        word.store(i);
        futex(word, FUTEX_WAKE, 1);
      },
      [](std::atomic<std::uint32_t>& word, std::uint32_t i) {
        while (word.load() != i) futex(word, FUTEX_WAIT, i - 1);
      });
}

}  // namespace

dlaunch::Result<double> line_handoff_us(const std::vector<int>& cores) {
  if (cores.size() < 2) return takes_two_cores();
  return ping_pong_us(
      cores, 2000,
      [](std::atomic<std::uint32_t>& word, std::uint32_t i) {
        word.store(i, std::memory_order_release);
      },
      [](std::atomic<std::uint32_t>& word, std::uint32_t i) {
        while (word.load(std::memory_order_acquire) != i) {
        }
      });
}

namespace {

// Loads from every line, with prefetches ahead: no copy is faster.
void fetch_lines(const char* data, std::size_t bytes) {
  constexpr std::size_t kLine = 64, kAhead = 16 * kLine;
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < bytes; at += kLine) {
    __builtin_prefetch(data + std::min(at + kAhead, bytes - 1));
    std::uint64_t word;
    std::memcpy(&word, data + at, sizeof word);
    sum += word;
  }
  asm volatile("" : : "r"(sum) : "memory");
}

}  // namespace

// Two cores store to a piece of memory each, then load the other's, and again, as staging slots go
// back and forth; both at once. Only the loads count: stores may run beside them.
dlaunch::Result<double> pass_gbs(const std::vector<int>& cores) {
  if (cores.size() < 2) return takes_two_cores();
  constexpr std::size_t kBytes = 256 << 10;
  constexpr std::uint32_t kTurns = 200;
  struct Side {
    Line step;
    std::vector<char> data = std::vector<char>(kBytes);
  };
  Side sides[2];
  std::vector<double> rates;
  const auto play = [&](std::size_t which) {
    pin(cores[which]);
    Side &own = sides[which], &other = sides[1 - which];
    std::uint32_t step = 0;
    const auto meet = [&] {
      own.step.word.store(++step, std::memory_order_release);
      while (other.step.word.load(std::memory_order_acquire) < step) {
      }
    };
    for (std::uint32_t turn = 0; turn < kTurns; ++turn) {
      std::memset(own.data.data(), static_cast<int>(turn), kBytes);
      meet();
      const double started = now_us();
      fetch_lines(other.data.data(), kBytes);
      if (which == 0) rates.push_back(kBytes / (now_us() - started) / 1e3);
      meet();
    }
  };
  {
    const std::jthread second([&] { play(1); });
    const std::jthread first([&] { play(0); });
  }
  return median(rates);
}

dlaunch::Result<double> futex_wake_us(const std::vector<int>& cores) {
  if (cores.size() < 2) return takes_two_cores();
  return sleepers_turn_us(cores);
}

double futex_switch_us(int core) { return sleepers_turn_us({core}); }

Loopback tcp_loopback(const std::vector<int>& cores) {
  constexpr std::size_t kBytes = 32 << 20;
  const auto ends = connect_loopback();
  if (!ends) return {ends.error(), ends.error()};
  const auto rtt = exchange_us(*ends, cores, 1, 2000);
  const auto stream = exchange_us(*ends, cores, kBytes, kTurnRepeats);
  if (!stream) return {stream.error(), rtt};
  return {static_cast<double>(kBytes) / *stream / 1e3, rtt};
}

}  // namespace bench
