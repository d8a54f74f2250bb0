// NodeLinks: the leader's connections to the dlaunches of other hosts: keeps the beat, measures the
// offsets of their clocks, turns frames into messages. An asio shell; one thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "launcher/wire/host_clock.h"
#include "launcher/wire/node_message.h"
#include "rendezvous/store_server.h"

namespace dlaunch {

class NodeLinks {
 public:
  using Link = NodeHandlers::Link;
  struct Handlers {
    std::function<void(Link, const std::string& address)> opened;
    // Times in the message are by our clock, with an error of clock_error().
    std::function<void(Link, const NodeMessage&)> message;
    std::function<void(Link)> closed;  // or silent for a lease
    std::function<void(UniqueFd, std::int32_t login, std::int32_t stream)> output = nullptr;
  };
  NodeLinks(asio::io_context& loop, Duration lease, Handlers handlers);

  // For the store that serves the other hosts, which must outlive it.
  NodeHandlers for_store();
  void serve(StoreServer& store) { store_ = &store; }
  // Starts the beat.
  void start() { beat(); }
  void stop() { timer_.cancel(); }

  void send(Link link, const NodeMessage& message);
  // Closes the link once the kernel has what was sent.
  void close(Link link) { store_->close(link); }
  // Parts with the hosts: calls then() when each has closed its end, and so has all that was sent,
  // or after a lease. Call it once. A program that asks (NodeAsks) still gets its answer, also if
  // its question has not come yet.
  void part_all(std::function<void()> then);
  // Starts measuring the clock of a node of the job, at first with several pings in a row.
  void watch_clock(Link link);

  // The peer has missed fewer than two beats.
  bool is_heard(Link link) const;
  // The error of the times in its messages.
  std::optional<Duration> clock_error(Link link) const;

 private:
  struct Connection {
    std::string address;
    TimePoint opened, heard;
    HostClock clock;
    bool joins = false;  // a host; else it asks, or has not said what it wants
    bool timed = false;
    int quick_pings = 0;  // still to be sent
  };
  void message(Link link, std::string_view frame);
  void on(Link link, const NodePong& pong);
  void beat();
  void parted(Link link);

  const Duration lease_;
  const Handlers handlers_;
  StoreServer* store_ = nullptr;
  std::map<Link, Connection> links_;
  std::set<Link> parting_;  // links of part_all() that are still open
  std::function<void()> then_;
  TimePoint due_ = kNever;  // the next beat
  asio::steady_timer timer_;
};

}  // namespace dlaunch
