// Relay: what connects to a listening socket of this host talks with another one's port of it, byte
// for byte. Only for connections of our own user. One thread, the loop's.
#pragma once

#include <cstdint>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

// Who is let in.
class Doorman {
 public:
  // Whether it is of our own user. Another one is told of: the first, and then ever more seldom.
  bool lets_in(const asio::ip::tcp::socket& accepted);

 private:
  unsigned long refused_ = 0;
};

class Relay {
 public:
  // listener: listens on 127.0.0.1. Both live until the loop ends.
  Relay(asio::io_context& loop, UniqueFd listener, std::uint16_t port);

 private:
  struct Pair;
  void accept();
  void accept_later();
  void take(asio::ip::tcp::socket accepted);

  Doorman doorman_;
  asio::ip::tcp::acceptor listener_;
  asio::steady_timer retry_;
  const asio::ip::tcp::endpoint there_;
};

}  // namespace dlaunch
