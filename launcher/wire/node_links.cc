#include "launcher/wire/node_links.h"

#include <utility>
#include <vector>

#include "base/log.h"

namespace dlaunch {
namespace {

constexpr int kQuickPings = 8;

}  // namespace

NodeLinks::NodeLinks(asio::io_context& loop, Duration lease, Handlers handlers)
    : lease_(lease), handlers_(std::move(handlers)), timer_(loop) {}

NodeHandlers NodeLinks::for_store() {
  return {.opened =
              [this](Link link, const std::string& address) {
                const auto now = steady_now();
                links_.insert_or_assign(link, Connection{address, now, now, HostClock(now)});
                handlers_.opened(link, address);
              },
          .message = [this](Link link, std::string_view frame) { message(link, frame); },
          .closed =
              [this](Link link) {
                links_.erase(link);
                handlers_.closed(link);
                parted(link);
              },
          .output = handlers_.output};
}

void NodeLinks::send(Link link, const NodeMessage& message) {
  const auto it = links_.find(link);
  if (it != links_.end()) store_->send(link, encode(message, it->second.opened));
}

void NodeLinks::part_all(std::function<void()> then) {
  stop();
  for (const auto& [link, connection] : links_) {
    if (connection.joins) parting_.insert(link);
  }
  if (parting_.empty()) return then();
  then_ = std::move(then);
  for (const Link link : parting_) store_->part(link);
  timer_.expires_after(lease_);
  timer_.async_wait([this](asio::error_code error) {
    if (!error && then_) std::exchange(then_, nullptr)();
  });
}

void NodeLinks::parted(Link link) {
  parting_.erase(link);
  if (!parting_.empty() || !then_) return;
  timer_.cancel();
  std::exchange(then_, nullptr)();
}

void NodeLinks::message(Link link, std::string_view frame) {
  Connection& connection = links_.at(link);
  connection.heard = steady_now();
  if (frame.empty()) return;
  auto message = decode_node_message(frame, connection.clock.origin(connection.heard));
  if (!message) {
    if (auto join = join_of_another_build(frame)) message = NodeMessage(std::move(*join));
  }
  if (!message) {
    log_warn("closed the connection of {}: {}", connection.address, message.error().what);
    return store_->close(link);
  }
  if (const auto* pong = std::get_if<NodePong>(&*message)) return on(link, *pong);
  if (std::holds_alternative<NodeJoin>(*message)) connection.joins = true;
  handlers_.message(link, *message);
}

// -- Clocks

void NodeLinks::watch_clock(Link link) {
  const auto it = links_.find(link);
  if (it == links_.end()) return;
  it->second.timed = true;
  it->second.quick_pings = kQuickPings;
  send(link, NodePing{steady_now() - it->second.opened});
}

void NodeLinks::on(Link link, const NodePong& pong) {
  Connection& connection = links_.at(link);
  connection.clock.add(connection.opened + pong.sent, connection.heard, pong.since);
  if (connection.quick_pings == 0) return;
  --connection.quick_pings;
  send(link, NodePing{steady_now() - connection.opened});
}

std::optional<Duration> NodeLinks::clock_error(Link link) const {
  const auto it = links_.find(link);
  return it == links_.end() ? std::nullopt : it->second.clock.error(steady_now());
}

// -- The beat

// A peer that is silent for the length of a lease is lost.
void NodeLinks::beat() {
  const bool slept = stood_still(due_);
  std::vector<Link> silent;
  const auto now = steady_now();
  for (auto& [link, connection] : links_) {
    if (slept) connection.heard = now;
    if (now > connection.heard + lease_) {
      silent.push_back(link);
    } else if (connection.timed) {
      send(link, NodePing{now - connection.opened});
    } else {
      store_->send(link, kBeatFrame);
    }
  }
  for (const Link link : silent) store_->close(link);
  due_ = steady_now() + kBeat;
  timer_.expires_at(due_);
  timer_.async_wait([this](asio::error_code error) {
    if (!error) beat();
  });
}

bool NodeLinks::is_heard(Link link) const {
  const auto it = links_.find(link);
  return it != links_.end() && steady_now() <= it->second.heard + 2 * kBeat;
}

}  // namespace dlaunch
