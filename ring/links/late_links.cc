#include "ring/links/late_links.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/codec.h"
#include "base/failpoint.h"
#include "base/secret.h"
#include "base/socket.h"
#include "rendezvous/handshake.h"
#include "ring/links/descriptor_limit.h"
#include "ring/links/listener.h"

namespace dlaunch {
namespace {

constexpr std::size_t kGreeting = sizeof(std::int32_t) + sizeof(Contact::token);
constexpr std::size_t kMostStrangers = 64;

std::string_view token_of(const Contact& contact) {
  return {reinterpret_cast<const char*>(contact.token), sizeof contact.token};
}

}  // namespace

bool is_of_own_user(int unix_socket) {
  ucred other{};
  socklen_t size = sizeof other;
  return ::getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
         other.uid == ::geteuid();
}

Result<std::unique_ptr<LateLinks>> LateLinks::open(int rank, UniqueFd listener, Contacts contacts) {
  auto made = std::make_unique<LateLinks>();
  LateLinks& links = *made;
  links.rank_ = rank;
  links.listener_ = std::move(listener);
  links.contacts_ = std::move(contacts);
  links.epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  // By edges: where this process has no room for another descriptor the loop does not spin.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = links.listener_.get()}};
  if (!links.epoll_ ||
      ::epoll_ctl(links.epoll_.get(), EPOLL_CTL_ADD, links.listener_.get(), &event) != 0) {
    return errno_error("later links: epoll", errno);
  }
  return made;
}

// A name whose owner has ended may be taken by another user.
Result<UniqueFd> LateLinks::connect(int rank) {
  const Contact& to = *contacts_.of[static_cast<std::size_t>(rank)];
  failpoint("late_links.connects");
  auto fd = connect_unix(listener_name({to.listener, sizeof to.listener}), SOCK_NONBLOCK);
  if (!fd) return fd;
  const Error ended{.code = Errc::io, .what = "its process has ended", .os_errno = ECONNREFUSED};
  if (!is_of_own_user(fd->get())) return ended;
  Writer greeting;
  greeting.put(static_cast<std::int32_t>(rank_));
  greeting.put_raw(token_of(to));
  const std::string bytes = greeting.take();
  if (::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
      static_cast<ssize_t>(bytes.size())) {
    return fd;
  }
  return errno == EPIPE || errno == ECONNRESET ? ended : errno_error("greet a rank", errno);
}

LateSource::Made LateLinks::accept() {
  epoll_event events[16];  // takes the edge; the sockets themselves say what there is
  (void)::epoll_wait(epoll_.get(), events, 16, 0);
  Made made;
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    it = advance(*it, made) ? std::next(it) : strangers_.erase(it);
  }
  let_in(made);
  return made;
}

// Those who wait at the listening socket. Whose greeting is there gets in at once; of the others,
// if there are too many, the oldest go.
void LateLinks::let_in(Made& made) {
  while (true) {
    allow_descriptors(1);
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    failpoint("late_links.accepted");
    if (!is_of_own_user(fd.get())) continue;
    Stranger stranger{std::move(fd), "", steady_now()};
    if (!advance(stranger, made)) continue;
    epoll_event event{.events = EPOLLIN, .data = {.fd = stranger.fd.get()}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stranger.fd.get(), &event);
    strangers_.push_back(std::move(stranger));
    if (strangers_.size() > kMostStrangers) strangers_.pop_front();
  }
}

// False: it is among those made, or it is to be dropped.
bool LateLinks::advance(Stranger& from, Made& made) const {
  char bytes[kGreeting];
  const ssize_t n = ::recv(from.fd.get(), bytes, kGreeting - from.said.size(), MSG_DONTWAIT);
  const bool waits = n < 0 && (errno == EAGAIN || errno == EINTR);
  if (n > 0) from.said.append(bytes, static_cast<std::size_t>(n));
  if (from.said.size() < kGreeting) {
    return (n > 0 || waits) && steady_now() - from.since < kHandshakeTimeout;
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, from.fd.get(), nullptr);  // if it was there
  const int rank = rank_of(from.said);
  if (rank >= 0) made.emplace_back(rank, std::move(from.fd));
  return false;
}

// -1: no rank that may connect.
int LateLinks::rank_of(const std::string& greeting) const {
  Reader in(greeting);
  const auto from = in.get<std::int32_t>();
  const bool known = from >= 0 && from < static_cast<int>(contacts_.of.size()) && from != rank_;
  const Contact& own = *contacts_.of[static_cast<std::size_t>(rank_)];
  return known && macs_equal(in.get_raw(sizeof own.token), token_of(own)) ? from : -1;
}

void LateLinks::close_in_child() {
  listener_.reset();
  epoll_.reset();
}

}  // namespace dlaunch
