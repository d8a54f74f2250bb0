// UnixAcceptor: a listening socket at a path. An asio shell; one thread, the loop's.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/process/acceptor.h"

namespace dlaunch {

class UnixAcceptor {
 public:
  // A non-blocking socket, and the process and user at its other end.
  using OnPeer = std::function<void(UniqueFd, const ucred&)>;
  // type: SOCK_STREAM or SOCK_SEQPACKET.
  static Result<std::unique_ptr<UnixAcceptor>> open(asio::io_context& loop, const std::string& path,
                                                    int type, OnPeer on_peer);

 private:
  UnixAcceptor(asio::io_context& loop, UniqueFd listener, OnPeer on_peer);

  const OnPeer on_peer_;
  Acceptor acceptor_;
};

}  // namespace dlaunch
