#include "launcher/process/acceptor.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/clock.h"

namespace dlaunch {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(50);

}  // namespace

Acceptor::Acceptor(asio::io_context& loop, UniqueFd listener, std::function<void(UniqueFd)> on_peer)
    : listener_(loop, listener.release()),
      pause_(loop, [this] { wait(); }),
      on_peer_(std::move(on_peer)) {
  wait();
}

void Acceptor::wait() {
  listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code ec) {
    if (!ec) accept();
  });
}

void Acceptor::accept() {
  UniqueFd fd(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool gone = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
  if (!fd && !gone) return pause_.arm(steady_now() + kPause);
  if (fd) on_peer_(std::move(fd));
  wait();
}

}  // namespace dlaunch
