// LeaderLink: the connection from a node's dlaunch to the job's leader. It connects, proves the
// secret, frames bytes, and keeps the beat. It retries, and resolves the name each time, until
// stop(). Of a name with several addresses another one comes first after each failure. An asio
// shell; one thread, the loop's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"
#include "elastic/leader_search.h"
#include "launcher/wire/deadline_timer.h"
#include "rendezvous/handshake.h"
#include "rendezvous/wire.h"

namespace dlaunch {

class LeaderLink {
 public:
  using Failure = LeaderSearch::Failure;
  struct Handlers {
    std::function<void()> opened;
    std::function<void(std::string_view frame)> message;
    // The open connection was lost; another attempt begins.
    std::function<void(const std::string& why)> lost;
    std::function<void(const Failure&)> failed;
  };
  // The leader counts as lost when nothing has come for a lease.
  LeaderLink(asio::io_context& loop, const Endpoint& endpoint, HandshakeIdentity self,
             const Secret& secret, Duration lease, Handlers handlers);
  ~LeaderLink();

  void start();
  void send(const std::string& frame);
  // Our own address, by which the leader's host reaches us; "" while not connected.
  std::string local_address() const;
  // The origin of the times that we send: when the connection was proven, or the attempt began.
  TimePoint origin() const;
  // Reads what has arrived so far: a leader's last words may still wait here when another one
  // leads.
  void hear_out();
  // Stops calling the handlers. Frames already sent still go out.
  void stop();

 private:
  struct Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;
  void attempt();
  Result<void> secure(asio::ip::tcp::socket& socket) const;
  void connected(const ConnectionPtr& connection);
  void read(const ConnectionPtr& connection);
  bool take(const ConnectionPtr& connection, std::string_view bytes);
  void flush(const ConnectionPtr& connection);
  void give_up(const ConnectionPtr& connection, Failure failure);
  void beat();

  asio::io_context& loop_;
  const Endpoint endpoint_;
  const HandshakeIdentity self_;
  const Secret secret_;
  const Duration lease_;
  const Handlers handlers_;
  DeadlineTimer timer_;  // the beat, or a pause before the next attempt
  ConnectionPtr connection_;
  Duration pause_;
  TimePoint beat_due_ = kNever;
  std::size_t failed_attempts_ = 0;
  bool stopped_ = false;
};

}  // namespace dlaunch
