#include "rendezvous/tls_tunnel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
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

#include "base/log.h"
#include "base/quiet_thread.h"
#include "base/socket.h"
#include "rendezvous/handshake.h"

namespace dlaunch {
namespace {

constexpr std::size_t kCarried = 64 << 10;  // bytes on their way in a tunnel, in each direction
constexpr int kTurns = 16;                  // before it is another one's turn
constexpr Duration kLastWords = std::chrono::seconds(1);

// Bytes that have come in and not gone out.
class Load {
 public:
  bool empty() const { return begin_ == end_; }
  char* room() {
    if (bytes_.empty()) bytes_.resize(kCarried);
    begin_ = end_ = 0;
    return bytes_.data();
  }
  void came(std::size_t bytes) { end_ = bytes; }
  const char* data() const { return bytes_.data() + begin_; }
  std::size_t size() const { return end_ - begin_; }
  void gone(std::size_t bytes) { begin_ += bytes; }
  void drop() { begin_ = end_; }

 private:
  std::vector<char> bytes_;
  std::size_t begin_ = 0, end_ = 0;
};

// One connection: `outer` is the TCP socket, `inner` our end of the pair whose other one is used.
class Tunnel {
 public:
  Tunnel(UniqueFd outer, UniqueFd inner, int used, std::unique_ptr<TlsChannel> channel,
         TlsChannel::Side side)
      : outer_(std::move(outer)),
        inner_(std::move(inner)),
        key_(carried_by(used, outer_.get())),
        channel_(std::move(channel)),
        accepts_(side == TlsChannel::Side::acceptor) {}
  ~Tunnel() { carried_no_more(key_); }

  int outer() const { return outer_.get(); }
  int inner() const { return inner_.get(); }
  // Of a forked child; the object cannot be used any more.
  void close() {
    outer_.reset();
    inner_.reset();
  }

  enum class State { waits, goes_on, over };
  // As far as both sockets allow, or for as long as is fair.
  State carry() {
    if (!shaken_ && !refused_) (void)shake_hands();
    if (refused_) drop_all();
    if (!shaken_) return over_ ? State::over : State::waits;
    for (int turn = 0; turn < kTurns; ++turn) {
      const bool out = carry_out(), in = carry_in();
      if (over()) return State::over;
      if (!out && !in) return State::waits;
    }
    return State::goes_on;
  }
  // Nothing more of what the program has written can be sent now.
  bool idle() const { return !shaken_ || load_out_.empty(); }

 private:
  bool shake_hands() {
    if (!accepts_ || speaks_tls()) {
      accepts_ = false;
      const auto shaken = channel_->shake_hands();
      shaken_ = shaken.outcome == TlsChannel::Outcome::moved;
      over_ = shaken.outcome == TlsChannel::Outcome::ended;
      if (shaken.outcome == TlsChannel::Outcome::refused) refuse();
    }
    // Whoever waited for it may have given up: what it said meanwhile is worth nothing.
    if (!shaken_ && !over_) over_ = hung_up();
    return shaken_;
  }

  // False: not yet, or not at all. A connector that does not encrypt is told so in its own
  // language.
  bool speaks_tls() {
    constexpr char kTlsRecord = 0x16;
    char bytes[1024];
    const ssize_t n = ::recv(outer_.get(), bytes, 1, MSG_PEEK | MSG_DONTWAIT);
    over_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n != 1) return false;
    if (bytes[0] == kTlsRecord) return true;
    // Unread bytes would make a reset of the end, which overtakes the refusal.
    (void)::recv(outer_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    const std::string told = refusal("this job encrypts its connections: is --tls given to both?");
    (void)::send(outer_.get(), told.data(), told.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    over_ = true;
    return false;
  }

  // The tunnel stays until the program has closed its end: it may be about to write to it, and
  // would hear of a broken pipe instead.
  void refuse() {
    refused_ = true;
    (void)::shutdown(outer_.get(), SHUT_RDWR);
    const std::string told = refusal("TLS: " + channel_->why() +
                                     ": do both sides hold this job's secret, and is --tls given "
                                     "to both?");
    (void)::send(inner_.get(), told.data(), told.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void drop_all() {
    ssize_t n = 1;
    while (n > 0) n = ::recv(inner_.get(), load_out_.room(), kCarried, MSG_DONTWAIT);
    over_ = n == 0 || (errno != EAGAIN && errno != EINTR) || hung_up();
  }

  // True: something has moved.
  bool carry_out() {
    if (load_out_.empty() && !out_ended_) {
      const ssize_t n = ::recv(inner_.get(), load_out_.room(), kCarried, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      load_out_.came(n > 0 ? static_cast<std::size_t>(n) : 0);
      if (n <= 0) {
        out_ended_ = true;
        channel_->end_writing();
        (void)::shutdown(outer_.get(), SHUT_WR);
      }
    }
    if (load_out_.empty()) return false;
    const auto written = channel_->write(load_out_.data(), load_out_.size());
    if (written.outcome == TlsChannel::Outcome::again) return false;
    if (written.outcome == TlsChannel::Outcome::moved) {
      load_out_.gone(written.bytes);
    } else {
      load_out_.drop();
      out_ended_ = true;  // what has come from there may still be read
    }
    return true;
  }

  bool carry_in() {
    if (load_in_.empty() && !in_ended_) {
      const auto got = channel_->read(load_in_.room(), kCarried);
      if (got.outcome == TlsChannel::Outcome::again) return false;
      load_in_.came(got.bytes);
      in_ended_ = got.outcome != TlsChannel::Outcome::moved;
      if (got.outcome == TlsChannel::Outcome::refused) {
        log_warn("a connection was changed on its way, and is ended: TLS: {}", channel_->why());
      }
      if (in_ended_) (void)::shutdown(inner_.get(), SHUT_WR);
    }
    if (load_in_.empty()) return false;
    const ssize_t n =
        ::send(inner_.get(), load_in_.data(), load_in_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return false;
    n < 0 ? load_in_.drop() : load_in_.gone(static_cast<std::size_t>(n));
    return true;
  }

  // The program has closed its end.
  bool hung_up() const {
    pollfd end{inner_.get(), 0, 0};
    return ::poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR)) != 0;
  }

  bool over() const {
    if (over_) return true;
    return out_ended_ && load_out_.empty() && ((in_ended_ && load_in_.empty()) || hung_up());
  }

  UniqueFd outer_, inner_;
  const std::uint64_t key_;
  const std::unique_ptr<TlsChannel> channel_;
  Load load_out_, load_in_;
  bool accepts_;
  bool shaken_ = false, refused_ = false, out_ended_ = false, in_ended_ = false, over_ = false;
};

// The thread, and what it carries. Of the process, and never destroyed.
class Tunnels {
 public:
  static Result<Tunnels*> of_process();
  static void finish_own();
  static void flush_own(Duration limit);
  // False: the process is about to end.
  bool add(std::unique_ptr<Tunnel> tunnel);
  // Waits until nothing that was written before is on its way out.
  void flush(Duration limit);
  // The same, and ends the thread: OpenSSL is about to go, too.
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
  std::uint64_t looks_ = 0;                        // the thread's: the flush it looks for
};

void ring_bell(const UniqueFd& bell) { ::eventfd_write(bell.get(), 1); }

Tunnels* of_this_process = nullptr;
std::mutex making;
std::atomic<void (*)()> last_words{nullptr};

Result<Tunnels*> Tunnels::of_process() {
  const std::lock_guard lock(making);
  // A forked child has the parent's, and not its thread.
  if (of_this_process != nullptr && of_this_process->process_ == ::getpid()) return of_this_process;
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

void Tunnels::finish_own() {
  if (of_this_process != nullptr && of_this_process->process_ == ::getpid()) {
    of_this_process->finish();
  }
}

void Tunnels::flush_own(Duration limit) {
  if (of_this_process != nullptr && of_this_process->process_ == ::getpid()) {
    of_this_process->flush(limit);
  }
}

Result<void> Tunnels::start() {
  process_ = ::getpid();
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kBell}};
  if (!epoll_ || !bell_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_.get(), &event) != 0) {
    return errno_error("TLS: epoll", errno);
  }
  TlsChannel::prepare();  // so that exit() comes to finish() first
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
  ring_bell(bell_);
  return true;
}

void Tunnels::flush(Duration limit) {
  std::unique_lock lock(mutex_);
  const std::uint64_t own = ++asked_;
  ring_bell(bell_);
  news_.wait_for(lock, limit, [&] { return flushed_ >= own || ended_; });
}

void Tunnels::finish() {
  flush(kLastWords);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ring_bell(bell_);
  if (thread_.joinable()) thread_.join();
}

void Tunnels::serve() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), ready_.empty() ? -1 : 0);
    for (int i = 0; i < n; ++i) {
      const Id id = events[static_cast<std::size_t>(i)].data.u64;
      id != kBell ? static_cast<void>(ready_.insert(id)) : take_new();
    }
    for (const Id id : std::exchange(ready_, {})) carry(id);
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
      continue;  // for want of memory: its connection ends
    }
    tunnels_[id] = std::move(fresh);
    ready_.insert(id);
  }
  // What was written last may not have shown yet.
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
  // As long as a child that was forked just now has its copies, closing them is not enough.
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

void flush_tunnels(Duration limit) { Tunnels::flush_own(limit); }

void before_tunnels_end(void (*hook)()) { last_words = hook; }

void finish_tunnels() {
  if (const auto hook = last_words.load()) hook();
  Tunnels::finish_own();
}

Result<UniqueFd> secured(UniqueFd tcp, TlsChannel::Side side, const Secret& secret) {
  if (!secret.encrypts()) return tcp;
  return tls_tunnel(std::move(tcp), side, secret);
}

}  // namespace dlaunch
