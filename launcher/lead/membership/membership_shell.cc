#include "launcher/lead/membership/membership_shell.h"

#include <poll.h>

#include <cerrno>
#include <utility>

namespace dlaunch {
namespace {

constexpr Duration kPredecessor = std::chrono::seconds(2);

}  // namespace

MembershipShell::MembershipShell(asio::io_context& loop, const Plan& plan,
                                 NodeMembership& membership)
    : loop_(loop),
      plan_(plan),
      membership_(membership),
      links_(loop, plan.nodes.host_timeout,
             {.opened = [this](Link link, const auto& from) { membership_.opened(link, from); },
              .message =
                  [this](Link link, const NodeMessage& what) {
                    membership_.message(link, what);
                    arm();
                  },
              .closed =
                  [this](Link link) {
                    membership_.closed(link);
                    arm();
                  },
              .output =
                  [this](UniqueFd fd, std::int32_t login, std::int32_t stream) {
                    if (on_output_) on_output_(std::move(fd), login, stream);
                  }}),
      timer_(loop, [this] {
        membership_.on_clock();
        arm();
      }) {}

Result<void> MembershipShell::open_store(const Secret& secret) {
  auto listen = parse_endpoint(plan_.store_listen);
  if (!listen) {
    Error error = listen.error();
    error.code = Errc::usage;
    return error;
  }
  StoreServerOptions options{*listen, plan_.job_id, secret, std::nullopt};
  if (plan_.nodes.several()) options.nodes = links_.for_store();
  auto store = StoreServer::open(loop_, options);
  // Our predecessor may be about to end: it keeps the port while it kills its workers.
  const TimePoint by = steady_now() + kPredecessor;
  while (!store && store.error().os_errno == EADDRINUSE && membership_.awaits_earlier() &&
         steady_now() < by) {
    ::poll(nullptr, 0, 20);
    store = StoreServer::open(loop_, options);
  }
  if (!store) return store.error();
  store_ = std::move(*store);
  links_.serve(*store_);
  return {};
}

void MembershipShell::gather() {
  membership_.gather();
  if (plan_.nodes.several()) links_.start();
  arm();
}

void MembershipShell::set_own(NodePort& node) {
  own_ = &node;
  node.begin(membership_.still_after());
}

void MembershipShell::send(Link link, const NodeMessage& message) {
  if (link != NodeMembership::kOwnLink) return links_.send(link, message);
  if (own_ != nullptr) own_->take(message);
}

void MembershipShell::part(std::function<void()> then) {
  arm();
  links_.part_all(std::move(then));
}

}  // namespace dlaunch
