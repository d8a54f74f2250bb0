#include "rendezvous/tls_tunnel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/quiet_thread.h"
#include "base/socket.h"
#include "rendezvous/tunnel.h"

namespace dlaunch {
namespace {

constexpr Duration kLastWords = std::chrono::seconds(1);

// The thread, and its tunnels. Of the process, and never destroyed.
class Tunnels {
 public:
  static Result<Tunnels*> of_process();
  // This process's tunnels, if it has any.
  static Tunnels* own();
  // False: the process is about to end.
  bool add(std::unique_ptr<Tunnel> tunnel);
  // Waits until all that was written before has left the process.
  void flush(Duration limit);
  // As flush(), and ends the thread: OpenSSL is about to go, too.
  void finish();
  // Around fork(): the child closes its copies, which would hide the parent's end from its peers.
  static void before_fork();
  static void after_fork();
  void close_in_child();

 private:
  using Id = std::uint64_t;
  static constexpr Id kBell = 0;
  Result<void> start();
  void serve();
  void take_new();
  void carry(Id id);
  bool idle() const;

  UniqueFd epoll_, bell_;
  std::thread thread_;
  pid_t process_ = 0;
  std::mutex mutex_;
  std::condition_variable news_;  // of flushed_, ended_
  std::vector<std::unique_ptr<Tunnel>> fresh_;
  std::uint64_t asked_ = 0, flushed_ = 0;  // flushes
  bool ending_ = false, ended_ = false;
  std::map<Id, std::unique_ptr<Tunnel>> tunnels_;  // the thread's; changed under the mutex
  std::set<Id> ready_;                             // the thread's
  Id last_ = kBell;                                // the thread's
  std::uint64_t looks_ = 0;                        // the thread's: the flush that it checks
};

Tunnels* of_this_process = nullptr;
std::mutex making;
std::atomic<void (*)()> last_words{nullptr};

Result<Tunnels*> Tunnels::of_process() {
  const std::lock_guard lock(making);
  if (Tunnels* const there = own()) return there;
  auto fresh = std::make_unique<Tunnels>();
  if (auto ok = fresh->start(); !ok) return ok.error();
  const bool first = of_this_process == nullptr;
  of_this_process = fresh.release();
  if (first) {
    std::atexit(finish_tunnels);
    pthread_atfork(before_fork, after_fork, [] { of_this_process->close_in_child(); });
  }
  return of_this_process;
}

void Tunnels::before_fork() {
  making.lock();
  of_this_process->mutex_.lock();
}

void Tunnels::after_fork() {
  of_this_process->mutex_.unlock();
  making.unlock();
}

// A forked child has the parent's tunnels but not its thread.
Tunnels* Tunnels::own() {
  const bool ours = of_this_process != nullptr && of_this_process->process_ == ::getpid();
  return ours ? of_this_process : nullptr;
}

Result<void> Tunnels::start() {
  process_ = ::getpid();
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kBell}};
  if (!epoll_ || !bell_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_.get(), &event) != 0) {
    return errno_error("TLS: epoll", errno);
  }
  // Prepared here, so that exit() calls finish() first.
  if (auto ok = TlsChannel::prepare(); !ok) return ok.error();
  auto thread = start_quiet_thread([this] { serve(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return {};
}

bool Tunnels::add(std::unique_ptr<Tunnel> tunnel) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return false;
    fresh_.push_back(std::move(tunnel));
  }
  ::eventfd_write(bell_.get(), 1);
  return true;
}

void Tunnels::flush(Duration limit) {
  std::unique_lock lock(mutex_);
  const std::uint64_t own = ++asked_;
  ::eventfd_write(bell_.get(), 1);
  news_.wait_for(lock, limit, [&] { return flushed_ >= own || ended_; });
}

void Tunnels::finish() {
  flush(kLastWords);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ::eventfd_write(bell_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void Tunnels::serve() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), ready_.empty() ? -1 : 0);
    bool rung = false;
    for (int i = 0; i < n; ++i) {
      const Id id = events[static_cast<std::size_t>(i)].data.u64;
      id != kBell ? static_cast<void>(ready_.insert(id)) : take_new();
      rung |= id == kBell;
    }
    for (const Id id : std::exchange(ready_, {})) carry(id);
    if (!rung && looks_ == flushed_) continue;  // no flush waits
    const std::lock_guard lock(mutex_);
    if (looks_ > flushed_ && ready_.empty() && idle()) flushed_ = looks_;
    ended_ = ending_;
    news_.notify_all();
    if (ended_) return;
  }
}

void Tunnels::take_new() {
  eventfd_t count;
  ::eventfd_read(bell_.get(), &count);
  const std::lock_guard lock(mutex_);
  for (auto& fresh : std::exchange(fresh_, {})) {
    const Id id = ++last_;
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.u64 = id}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fresh->outer(), &event) != 0 ||
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fresh->inner(), &event) != 0) {
      continue;  // out of memory: its connection ends
    }
    tunnels_[id] = std::move(fresh);
    ready_.insert(id);
  }
  // The latest write may not have shown yet.
  if (looks_ == asked_) return;
  looks_ = asked_;
  for (const auto& [id, tunnel] : tunnels_) ready_.insert(id);
}

void Tunnels::carry(Id id) {
  const auto found = tunnels_.find(id);
  if (found == tunnels_.end()) return;
  const Tunnel::State state = found->second->carry();
  if (state == Tunnel::State::goes_on) ready_.insert(id);
  if (state != Tunnel::State::over) return;
  // A child forked just now still has its copies, so closing ours is not enough.
  for (const int fd : {found->second->outer(), found->second->inner()}) {
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
  const std::lock_guard lock(mutex_);
  tunnels_.erase(found);
}

void Tunnels::close_in_child() {
  for (const auto& [id, tunnel] : tunnels_) tunnel->close();
  for (const auto& tunnel : fresh_) tunnel->close();
  carriers_in_child();
  after_fork();
}

bool Tunnels::idle() const {
  for (const auto& [id, tunnel] : tunnels_) {
    if (!tunnel->idle()) return false;
  }
  return true;
}

}  // namespace

Result<UniqueFd> tls_tunnel(UniqueFd tcp, TlsChannel::Side side, const Secret& secret) {
  auto tunnels = Tunnels::of_process();
  if (!tunnels) return tunnels.error();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return errno_error("TLS: socketpair", errno);
  }
  UniqueFd inner(ends[0]), used(ends[1]);
  const int on = 1;
  (void)::setsockopt(tcp.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int flags = ::fcntl(tcp.get(), F_GETFL);
  if (flags < 0 || ::fcntl(tcp.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return errno_error("TLS: make the socket non-blocking", errno);
  }
  auto channel = TlsChannel::open(tcp.get(), side, secret);
  if (!channel) return channel.error();
  if (!(*tunnels)->add(std::make_unique<Tunnel>(std::move(tcp), std::move(inner), used.get(),
                                                std::move(*channel), side))) {
    return Error{.code = Errc::aborted, .what = "TLS: this process is about to end"};
  }
  return used;
}

void flush_tunnels(Duration limit) {
  if (Tunnels* const own = Tunnels::own()) own->flush(limit);
}

void before_tunnels_end(void (*hook)()) { last_words = hook; }

void finish_tunnels() {
  if (const auto hook = last_words.load()) hook();
  if (Tunnels* const own = Tunnels::own()) own->finish();
}

Result<UniqueFd> secured(UniqueFd tcp, TlsChannel::Side side, const Secret& secret) {
  if (!secret.encrypts()) return tcp;
  return tls_tunnel(std::move(tcp), side, secret);
}

}  // namespace dlaunch
