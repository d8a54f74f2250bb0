// Relay: connects clients of one listening socket of this host with another port of it, byte for
// byte. Only for clients of our own user. One thread, the loop's.
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

// Decides which connections are accepted.
class Doorman {
 public:
  // True: the client is of our own user. Warns about others: the first, and then ever more seldom.
  bool lets_in(const asio::ip::tcp::socket& accepted);

 private:
  unsigned long refused_ = 0;
};

class Relay {
 public:
  // listener: listens on 127.0.0.1. Both live until the loop ends. Connects to the other port once
  // the client has sent something. Closes a client that gets no answer within `patience`: the
  // service is of no use to it, or it is a stranger that is silent or does not speak the protocol.
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
