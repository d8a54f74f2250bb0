// Acceptor: accepts the connections of a listening socket. When it is out of descriptors, it leaves
// connections in the backlog for a while. An asio shell; one thread, the loop's.
#pragma once

#include <functional>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/unique_fd.h"
#include "launcher/wire/deadline_timer.h"

namespace dlaunch {

class Acceptor {
 public:
  // listener: non-blocking. on_peer gets a non-blocking socket.
  Acceptor(asio::io_context& loop, UniqueFd listener, std::function<void(UniqueFd)> on_peer);

 private:
  void wait();
  void accept();

  asio::posix::stream_descriptor listener_;
  DeadlineTimer pause_;
  const std::function<void(UniqueFd)> on_peer_;
};

}  // namespace dlaunch
