#include "launcher/process/unix_acceptor.h"

#include <utility>

#include "base/socket.h"

namespace dlaunch {

Result<std::unique_ptr<UnixAcceptor>> UnixAcceptor::open(asio::io_context& loop,
                                                         const std::string& path, int type,
                                                         OnPeer on_peer) {
  auto listener = listen_unix_path(path, type | SOCK_NONBLOCK);
  if (!listener) return listener.error();
  return std::unique_ptr<UnixAcceptor>(
      new UnixAcceptor(loop, std::move(*listener), std::move(on_peer)));
}

UnixAcceptor::UnixAcceptor(asio::io_context& loop, UniqueFd listener, OnPeer on_peer)
    : on_peer_(std::move(on_peer)), acceptor_(loop, std::move(listener), [this](UniqueFd fd) {
        ucred peer{};
        socklen_t size = sizeof peer;
        const bool known = ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
        if (known) on_peer_(std::move(fd), peer);
      }) {}

}  // namespace dlaunch
