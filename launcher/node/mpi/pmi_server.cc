#include "launcher/node/mpi/pmi_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "base/quiet_thread.h"

namespace dlaunch {
namespace {

Result<void> poll_also(int poll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return errno_error("epoll_ctl", errno);
}

std::string turn_key(int round, int turn) { return fmt::format("pmi/r{}/{}/", round, turn); }

}  // namespace

PmiServer::PmiServer(asio::io_context& loop, StoreOptions options)
    : loop_(loop), first_(loop), exchange_(std::move(options)) {}

PmiServer::~PmiServer() {
  stopped_ = true;
  if (stop_) ::eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

Result<void> PmiServer::open() {
  if (poll_) return {};
  UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC)), stop(::eventfd(0, EFD_CLOEXEC));
  UniqueFd watched(::fcntl(poll.get(), F_DUPFD_CLOEXEC, 0));
  if (!poll || !stop || !watched) return errno_error("epoll", errno);
  if (auto ok = poll_also(poll.get(), stop.get()); !ok) return ok;
  poll_ = std::move(poll);
  stop_ = std::move(stop);
  first_.assign(watched.release());
  await_first();
  return {};
}

void PmiServer::await_first() {
  first_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code ec) {
    if (ec) return;
    first_.close();
    auto thread = start_quiet_thread([this] { serve(); });
    if (thread) {
      thread_ = std::move(*thread);
    } else {
      log_warn("{}: MPI programs do not find each other", thread.error().what);
    }
  });
}

Result<UniqueFd> PmiServer::connect(const WorkerPlace& place) {
  if (auto ok = open(); !ok) return ok.error();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error("socketpair", errno);
  }
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const int client = ours.get();
  const std::lock_guard lock(mutex_);
  newest_round_ = place.round;
  core_.add(client, {.round = place.round,
                     .size = place.size,
                     .local_size = place.local_size,
                     .nodes = place.nodes,
                     .appnum = place.appnum});
  sessions_[client] = {.fd = std::move(ours), .unread = {}, .place = place};
  if (auto ok = poll_also(poll_.get(), client); !ok) return close(client), ok.error();
  return theirs;
}

void PmiServer::forget_rounds() {
  const std::lock_guard lock(mutex_);
  ++run_;  // ends exchanges
  core_.forget_rounds();
}

// -- The thread

void PmiServer::serve() {
  while (!stopped_) {
    epoll_event events[64];
    const int n = ::epoll_wait(poll_.get(), events, 64, -1);
    for (int i = 0; i < n && !stopped_; ++i) {
      if (events[i].data.fd != stop_.get()) hear(events[i].data.fd);
    }
  }
}

void PmiServer::hear(int client) {
  std::unique_lock lock(mutex_);
  const auto found = sessions_.find(client);
  if (found == sessions_.end()) return;
  char bytes[4096];
  const ssize_t n = ::recv(client, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return close(client);
  found->second.unread.append(bytes, static_cast<std::size_t>(n));
  const WorkerPlace place = found->second.place;
  for (;;) {
    std::string& unread = found->second.unread;
    const auto end = unread.find('\n');
    if (end == unread.npos) {
      if (unread.size() > kMaxPmiLine) close(client);
      return;
    }
    const std::string line = unread.substr(0, end);
    unread.erase(0, end + 1);
    auto actions = core_.said(client, line);
    if (!actions) {
      asio::post(loop_, [rank = place.rank, what = actions.error().what] {
        log_warn("rank {}: {}", rank, what);
      });
      return close(client);
    }
    if (actions->abort) {
      asio::post(loop_, [this, worker = place.worker, code = *actions->abort] {
        if (aborted_) aborted_(worker, code);
      });
    }
    if (actions->spawn) {
      asio::post(loop_, [this, rank = place.rank] {
        if (spawn_asked_) spawn_asked_(rank);
      });
    }
    if (actions->exchange) {
      const auto what = *actions->exchange;
      const int run = run_;
      lock.unlock();
      const auto others = exchange(what, place, run);
      lock.lock();
      if (run != run_) return close(client);
      actions = core_.exchanged(what.round, others);
    }
    for (const auto& reply : actions->replies) {
      (void)::send(reply.to, reply.line.data(), reply.line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (!sessions_.contains(client)) return;
  }
}

void PmiServer::close(int client) {
  ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, client, nullptr);
  core_.gone(client);
  sessions_.erase(client);
}

PmiServer::Others PmiServer::exchange(const PmiCore::Exchange& what, const WorkerPlace& place,
                                      int run) {
  NodeExchange::Request request{.store_url = place.store_url,
                                .key = turn_key(what.round, what.turn),
                                .node = place.node_rank,
                                .text = what.own};
  for (int node = 0; node < place.nodes; ++node) {
    if (node != place.node_rank) request.others.push_back(node);
  }
  const auto is_over = [&] { return stopped_ || run_ != run || newest_round_ != what.round; };
  auto others = exchange_.run(request, [&](int) { return is_over(); });
  if (others) {
    // All are here, so all have read the values before.
    exchange_.forget(turn_key(what.round, what.turn - 1), place.node_rank);
  } else if (others.error().code != Errc::aborted && !is_over()) {
    asio::post(loop_, [why = others.error().what] {
      log_warn("the ranks of an MPI program cannot find each other: {}", why);
    });
  }
  return others;
}

}  // namespace dlaunch
