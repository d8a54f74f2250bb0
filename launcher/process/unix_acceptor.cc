#include "launcher/process/unix_acceptor.h"

#include <cerrno>

#include "base/clock.h"
#include "base/socket.h"

namespace dlaunch {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(50);

}  // namespace

Result<std::unique_ptr<UnixAcceptor>> UnixAcceptor::open(asio::io_context& loop,
                                                         const std::string& path, int type,
                                                         OnPeer on_peer) {
  auto listener = listen_unix_path(path, type | SOCK_NONBLOCK);
  if (!listener) return listener.error();
  return std::unique_ptr<UnixAcceptor>(
      new UnixAcceptor(loop, std::move(*listener), std::move(on_peer)));
}

UnixAcceptor::UnixAcceptor(asio::io_context& loop, UniqueFd listener, OnPeer on_peer)
    : listener_(loop, listener.release()), pause_(loop), on_peer_(std::move(on_peer)) {
  wait();
}

void UnixAcceptor::wait() {
  listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code ec) {
    if (!ec) accept();
  });
}

void UnixAcceptor::accept() {
  UniqueFd fd(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool gone = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
  if (!fd && !gone) {
    pause_.expires_after(kPause);
    return pause_.async_wait([this](asio::error_code ec) {
      if (!ec) wait();
    });
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = fd && ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (known) on_peer_(std::move(fd), peer);
  wait();
}

}  // namespace dlaunch
