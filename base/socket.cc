#include "base/socket.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>

#include "base/check.h"

namespace dlaunch {
namespace {

struct Ends {
  sockaddr_storage local{}, peer{};
  socklen_t size = 0;
};

// False: not a connected TCP socket.
bool get_ends(int fd, Ends& ends) {
  socklen_t local_size = sizeof ends.local, peer_size = sizeof ends.peer;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&ends.local), &local_size) != 0) return false;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&ends.peer), &peer_size) != 0) return false;
  ends.size = local_size;
  const int family = ends.local.ss_family;
  return (family == AF_INET || family == AF_INET6) && local_size == peer_size;
}

void clear_port(sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
  } else {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = 0;
  }
}

}  // namespace

Result<UniqueFd> begin_to_connect(const sockaddr* address, socklen_t size, const std::string& who) {
  UniqueFd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error(who, errno);
  send_unpaced_on_loopback(fd.get(), address);
  if (::connect(fd.get(), address, size) != 0 && errno != EINPROGRESS) {
    return errno_error(who, errno);
  }
  return fd;
}

Result<void> how_connected(int fd, const std::string& who) {
  int err = 0;
  socklen_t size = sizeof err;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size);
  if (err == 0 && connected_to_itself(fd)) err = ECONNREFUSED;
  return err == 0 ? Result<void>() : errno_error(who, err);
}

Result<UniqueFd> connect_socket(const sockaddr* address, socklen_t size, const std::string& who,
                                TimePoint deadline) {
  auto fd = begin_to_connect(address, size, who);
  if (!fd) return fd;
  pollfd writable{fd->get(), POLLOUT, 0};
  while (::poll(&writable, 1, poll_timeout_ms(steady_now(), deadline)) <= 0) {
    if (steady_now() >= deadline) return errno_error(who, ETIMEDOUT);
  }
  if (auto ok = how_connected(fd->get(), who); !ok) return ok.error();
  return fd;
}

Result<UniqueFd> connect_to_one_of(const std::vector<SocketAddress>& addresses,
                                   const std::string& who, TimePoint deadline) {
  Error last{.what = who + ": no address"};
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto left = static_cast<long>(addresses.size() - i);
    const TimePoint now = steady_now();
    auto fd =
        connect_socket(addresses[i].get(), addresses[i].size, who, now + (deadline - now) / left);
    if (fd) return fd;
    last = fd.error();
  }
  return last;
}

socklen_t abstract_address(std::string_view name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  // Such names begin with a zero byte; the given size ends them.
  DL_ASSERT(name.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

namespace {

// sockaddr_un holds about 100 bytes: connect and bind reach longer paths through their folder's
// descriptor and /proc.
template <class Call>
Result<UniqueFd> at_unix_path(const std::string& path, int type, Call call) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  UniqueFd folder;
  std::string here = path;
  if (path.size() >= sizeof address.sun_path) {
    const auto slash = path.rfind('/');
    const std::string name = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    folder.reset(::open(name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return errno_error(name, errno);
    here = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + path.substr(slash + 1);
  }
  DL_ASSERT(here.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, here.data(), here.size());
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd || call(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return errno_error(path, errno);
  }
  return fd;
}

}  // namespace

Result<UniqueFd> connect_unix_path(const std::string& path, int type) {
  return at_unix_path(path, type, ::connect);
}

Result<UniqueFd> listen_unix_path(const std::string& path, int type) {
  auto fd = at_unix_path(path, type, ::bind);
  if (fd && ::listen(fd->get(), SOMAXCONN) != 0) return errno_error(path, errno);
  return fd;
}

bool connected_to_itself(int fd) {
  Ends ends;
  return get_ends(fd, ends) && std::memcmp(&ends.local, &ends.peer, ends.size) == 0;
}

void send_unpaced_on_loopback(int fd, const sockaddr* address) {
  // Every kernel has it, and every user may choose it.
  constexpr std::string_view kUnpaced = "reno";
  if (!is_loopback(address)) return;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size());
}

namespace {

// By inode, which no two open sockets share. Never destroyed: threads may use it until the process
// ends.
struct Carriers {
  std::shared_mutex mutex;
  std::map<std::uint64_t, int> tcp;
  std::atomic<std::size_t> count{0};
};

std::atomic<Carriers*>& all_carriers() {
  static std::atomic<Carriers*> all = new Carriers;
  return all;
}

Carriers& carriers() { return *all_carriers(); }

std::uint64_t inode_of(int fd) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 ? st.st_ino : 0;
}

}  // namespace

std::uint64_t carried_by(int socket, int tcp) {
  const std::uint64_t key = inode_of(socket);
  const std::lock_guard lock(carriers().mutex);
  carriers().tcp[key] = tcp;
  carriers().count = carriers().tcp.size();
  return key;
}

void carried_no_more(std::uint64_t key) {
  const std::lock_guard lock(carriers().mutex);
  carriers().tcp.erase(key);
  carriers().count = carriers().tcp.size();
}

void carriers_in_child() { all_carriers() = new Carriers; }

Carrier::Carrier(int socket) : fd_(socket) {
  if (carriers().count == 0) return;
  open_ = std::shared_lock(carriers().mutex);
  const auto found = carriers().tcp.find(inode_of(socket));
  if (found != carriers().tcp.end()) fd_ = found->second;
}

bool lacks_descriptors(int os_errno) {
  return os_errno == EMFILE || os_errno == ENFILE || os_errno == ENOBUFS || os_errno == ENOMEM;
}

bool is_unix_socket(int fd) {
  const Carrier carrier(fd);
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(carrier.fd(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         domain == AF_UNIX;
}

bool leads_to_other_host(int fd) {
  const Carrier carrier(fd);
  Ends ends;
  if (!get_ends(carrier.fd(), ends)) return false;
  clear_port(ends.local);
  clear_port(ends.peer);
  return std::memcmp(&ends.local, &ends.peer, ends.size) != 0;
}

namespace {

void set_option(const Carrier& carrier, int level, int name, int value) {
  (void)::setsockopt(carrier.fd(), level, name, &value, sizeof value);
}

void probe_when_idle(const Carrier& carrier, int pause_seconds, int probes) {
  set_option(carrier, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(carrier, IPPROTO_TCP, TCP_KEEPIDLE, pause_seconds);
  set_option(carrier, IPPROTO_TCP, TCP_KEEPINTVL, pause_seconds);
  set_option(carrier, IPPROTO_TCP, TCP_KEEPCNT, probes);
}

}  // namespace

void end_when_silent(int fd, Duration silence) {
  if (!leads_to_other_host(fd)) return;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(silence).count();
  const int pause = static_cast<int>(std::clamp<std::int64_t>(seconds / 5, 1, 32767));
  const int probes = static_cast<int>(std::clamp<std::int64_t>(seconds / pause - 1, 1, 127));
  retry_steadily(fd);
  const Carrier carrier(fd);
  probe_when_idle(carrier, pause, probes);
  // The kernel sends no probes while sent data wait for an acknowledgement.
  set_option(carrier, IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<int>(std::min<std::int64_t>(seconds, 1 << 20) * 1000));
}

void keep_alive(int fd) {
  if (leads_to_other_host(fd)) probe_when_idle(Carrier(fd), 30, 127);
}

void retry_steadily(int fd) {
  constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS, since Linux 6.15
  const Carrier carrier(fd);
  const int on = 1, longest_ms = 1000;
  (void)::setsockopt(carrier.fd(), IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
  (void)::setsockopt(carrier.fd(), IPPROTO_TCP, kRtoMaxMs, &longest_ms, sizeof longest_ms);
}

}  // namespace dlaunch
