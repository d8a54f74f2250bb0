// MembershipShell: the sockets and the clock of NodeMembership: the job's store, which also takes
// the connections of other hosts, and the links over them. One thread, the loop's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"
#include "launcher/lead/membership/node_membership.h"
#include "launcher/plan/plan.h"
#include "launcher/wire/deadline_timer.h"
#include "launcher/wire/node_links.h"
#include "launcher/wire/node_port.h"
#include "rendezvous/store_server.h"

namespace dlaunch {

class MembershipShell final : public NodeMembership::Effects {
 public:
  // plan and membership must outlive it; membership may be made after it.
  MembershipShell(asio::io_context& loop, const Plan& plan, NodeMembership& membership);

  // Opens the store. Errc::usage: the plan's address is none.
  Result<void> open_store(const Secret& secret);
  Endpoint endpoint() const { return store_->endpoint(); }
  // Once the store is open.
  void gather();
  void set_own(NodePort& node);
  // Gets the connections by which started dlaunches send their output
  // (launcher/wire/output_link.h).
  using OnOutput = std::function<void(UniqueFd, std::int32_t login, std::int32_t stream)>;
  void on_output(OnOutput take) { on_output_ = std::move(take); }
  // After NodeMembership::finish(): calls then() once each host has got all that was sent, or has
  // been silent for a lease.
  void part(std::function<void()> then);

 private:
  using Link = NodeMembership::Link;
  TimePoint now() override { return steady_now(); }
  void send(Link link, const NodeMessage& message) override;
  void close(Link link) override { links_.close(link); }
  bool is_heard(Link link) override { return links_.is_heard(link); }
  void watch_clock(Link link) override { links_.watch_clock(link); }
  std::optional<Duration> clock_error(Link link) override { return links_.clock_error(link); }
  void say(LogLevel level, const std::string& words) override { log_line(level, words); }
  void arm() { timer_.arm(membership_.deadline().value_or(kNever)); }

  asio::io_context& loop_;
  const Plan& plan_;
  NodeMembership& membership_;
  NodeLinks links_;
  std::unique_ptr<StoreServer> store_;
  NodePort* own_ = nullptr;
  OnOutput on_output_;
  DeadlineTimer timer_;
};

}  // namespace dlaunch
