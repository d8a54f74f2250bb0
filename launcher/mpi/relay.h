// Relay: what connects to a listening socket of this host talks with another one's port of it, byte
// for byte. Only for connections of our own user. One thread, the loop's.
#pragma once

#include <chrono>
#include <cstdint>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
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
  // listener: listens on 127.0.0.1. Both live until the loop ends. The other port hears of a
  // connection once it has said something. One that it has not answered in `patience` is closed: of
  // no use to a program, and a stranger's if it is silent or does not speak the protocol.
  Relay(asio::io_context& loop, UniqueFd listener, std::uint16_t port,
        Duration patience = std::chrono::seconds(5));

 private:
  struct Pair;
  void accept();
  void accept_later();
  void take(asio::ip::tcp::socket accepted);

  Doorman doorman_;
  asio::ip::tcp::acceptor listener_;
  asio::steady_timer retry_;
  const asio::ip::tcp::endpoint there_;
  const Duration patience_;
};

}  // namespace dlaunch
