#include "launcher/lead/start/pbs_login.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/endpoint.h"
#include "base/exit_code.h"
#include "base/secret.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/process/command.h"
#include "launcher/process/spawn.h"
#include "rendezvous/handshake.h"

namespace dlaunch {
namespace {

constexpr Duration kStartLimit = std::chrono::seconds(60);  // for PBS, to start it there
constexpr Duration kConnectLimit = std::chrono::seconds(10);
constexpr std::size_t kPipePiece = 4096;  // a pipe that has room takes this much without blocking

std::string pbs_variable(const char* name) {
  const char* const value = ::getenv(name);
  return value == nullptr ? "" : value;
}

int give_up_login(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return kExitRendezvous;
}

Secret pbs_secret() { return Secret(pbs_variable("PBS_JOBCOOKIE")); }

HandshakeIdentity task_identity(std::int32_t stream) {
  return {.purpose = Purpose::node,
          .job_id = pbs_variable("PBS_JOBID"),
          .from_rank = stream,
          .who = "PBS's task"};
}

struct BackListener {
  UniqueFd socket;
  Endpoint at;
};

Result<BackListener> listen_back_at(const std::string& host) {
  const auto addresses = resolve(host, 0);
  if (!addresses) return addresses.error();
  const SocketAddress& address = addresses->front();
  UniqueFd socket(
      ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), 16) != 0) {
    return errno_error("listen at " + host, errno);
  }
  const auto bound = bound_address(socket.get());
  if (!bound) return bound.error();
  return BackListener{std::move(socket), {host, port_of(*bound)}};
}

struct Pbsdsh {
  Spawned process;
  UniqueFd words;  // its output
};

Result<Pbsdsh> run_pbsdsh(const std::string& pbsdsh, const std::string& index,
                          const std::string& dlaunch, const Endpoint& back) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_error("pipe for pbsdsh", errno);
  UniqueFd words(ends[0]), printing(ends[1]);
  SpawnRequest request;
  request.path = pbsdsh;
  request.argv = {"pbsdsh", "-n", index, "--", dlaunch, kPbsTaskWord, to_string(back)};
  request.env = own_environment();
  UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  request.in = nothing.get();
  request.out = request.err = printing.get();
  request.death_signal = SIGTERM;  // pbsdsh passes it on to the program that it started
  auto spawned = spawn_helper(std::move(request));
  if (!spawned) return spawned.error();
  return Pbsdsh{std::move(*spawned), std::move(words)};
}

// The last line of its output.
std::string last_line_of(const Pbsdsh& pbsdsh) {
  std::string text(kPipePiece, '\0');
  const ssize_t n = ::read(pbsdsh.words.get(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  const auto lines = split_words(text, '\n');
  return lines.empty() ? "" : fmt::format(" ({})", lines.back());
}

// By the number of its descriptor in the task. The handshake carries it as the sender's rank.
using TaskStreams = std::array<UniqueFd, 3>;

bool all_there(const TaskStreams& streams) {
  return std::ranges::all_of(streams, [](const UniqueFd& fd) { return bool(fd); });
}

// Strangers may connect to the port, too.
void take_stream(const BackListener& listener, TaskStreams& streams) {
  UniqueFd fd(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return;
  const auto peer = handshake_accept(fd.get(), pbs_secret(), task_identity(-1),
                                     deadline_after(steady_now(), kHandshakeTimeout));
  if (!peer || peer->from_rank < STDIN_FILENO || peer->from_rank > STDERR_FILENO) return;
  keep_alive(fd.get());
  streams[static_cast<std::size_t>(peer->from_rank)] = std::move(fd);
}

Result<TaskStreams> wait_for_streams(const BackListener& listener, const Pbsdsh& pbsdsh,
                                     const std::string& host) {
  TaskStreams streams;
  const TimePoint deadline = deadline_after(steady_now(), kStartLimit);
  while (!all_there(streams)) {
    std::array<pollfd, 3> fds = {{{listener.socket.get(), POLLIN, 0},
                                  {pbsdsh.process.pidfd.get(), POLLIN, 0},
                                  {STDIN_FILENO, 0, 0}}};  // whether our starter lives
    ::poll(fds.data(), fds.size(), poll_timeout_ms(steady_now(), deadline));
    if (fds[0].revents != 0) {
      take_stream(listener, streams);
    } else if (fds[1].revents != 0) {
      return Error{.what = fmt::format("pbsdsh ended{}, and dlaunch on {} has not connected: it "
                                       "must be at the same path there",
                                       last_line_of(pbsdsh), host)};
    } else if (fds[2].revents != 0) {
      return Error{.what = "dlaunch no longer waits for " + host};
    } else if (steady_now() >= deadline) {
      return Error{.what = fmt::format(
                       "PBS has not started dlaunch on {} within {} s", host,
                       std::chrono::duration_cast<std::chrono::seconds>(kStartLimit).count())};
    }
  }
  return streams;
}

// Bytes in transit from one descriptor to another.
struct ByteChannel {
  int from, to;
  std::string held = {};
  bool over = false;

  pollfd wait() const {
    if (over) return {-1, 0, 0};
    return held.empty() ? pollfd{from, POLLIN, 0} : pollfd{to, POLLOUT, 0};
  }
  void move() {
    if (!held.empty()) {
      const ssize_t n = ::write(to, held.data(), held.size());
      if (n > 0) held.erase(0, static_cast<std::size_t>(n));
      over = n < 0 && errno != EAGAIN && errno != EINTR;
      return;
    }
    held.resize(kPipePiece);
    const ssize_t n = ::read(from, held.data(), kPipePiece);
    held.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  }
};

void carry_streams(const TaskStreams& streams) {
  std::array<ByteChannel, 3> channels = {{{STDIN_FILENO, streams[STDIN_FILENO].get()},
                                          {streams[STDOUT_FILENO].get(), STDOUT_FILENO},
                                          {streams[STDERR_FILENO].get(), STDERR_FILENO}}};
  while (!channels[1].over || !channels[2].over) {
    std::array<pollfd, 3> fds{};
    for (std::size_t i = 0; i < fds.size(); ++i) fds[i] = channels[i].wait();
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents == 0) continue;
      channels[i].move();
      if (i == 0 && channels[0].over) ::shutdown(streams[0].get(), SHUT_WR);
    }
  }
}

Result<UniqueFd> connect_stream(const Endpoint& back, std::int32_t stream) {
  const auto addresses = resolve(back.host, back.port);
  if (!addresses) return addresses.error();
  const auto deadline = deadline_after(steady_now(), kConnectLimit);
  const SocketAddress& address = addresses->front();
  auto fd = connect_socket(address.get(), address.size, to_string(back), deadline);
  if (!fd) return fd;
  const auto proved = handshake_connect(fd->get(), pbs_secret(), task_identity(stream), deadline);
  if (!proved) return proved.error();
  keep_alive(fd->get());
  ::fcntl(fd->get(), F_SETFL, ::fcntl(fd->get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

}  // namespace

int run_pbs_login(const std::vector<std::string>& words) {
  if (words.size() != 5) return kExitUsage;
  const auto& [pbsdsh, index, host, address, dlaunch] =
      std::tie(words[0], words[1], words[2], words[3], words[4]);
  // PBS may send the job's signals to each of its processes: our starter ends us.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {
    ::signal(signal, SIG_IGN);
  }
  const auto listener = listen_back_at(address);
  if (!listener) return give_up_login(listener.error().what);
  const auto started = run_pbsdsh(pbsdsh, index, dlaunch, listener->at);
  if (!started) return give_up_login(started.error().what);
  const auto streams = wait_for_streams(*listener, *started, host);
  if (!streams) return give_up_login(streams.error().what);
  carry_streams(*streams);
  return kExitOk;
}

int connect_pbs_task(const std::string& endpoint) {
  const auto back = parse_endpoint(endpoint);
  if (!back) return kExitUsage;
  for (const int own : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const auto fd = connect_stream(*back, own);
    if (!fd) return give_up_login("dlaunch: connect back to " + endpoint + ": " + fd.error().what);
    if (::dup2(fd->get(), own) < 0) return kExitSystem;
  }
  return kExitOk;
}

}  // namespace dlaunch
