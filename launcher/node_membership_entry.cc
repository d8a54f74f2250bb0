// Which hosts come into the job.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "launcher/hosts/nat.h"
#include "launcher/node_membership.h"

namespace dlaunch {

void NodeMembership::join(Link link, const NodeJoin& join) {
  const std::string host = escaped(join.host);
  const std::string ours = what_must_agree(plan_);
  if (join.job != ours) {
    return refuse(link, fmt::format("host {} was started with {}; here it is {}", host,
                                    escaped(join.job), ours));
  }
  if (kept_out_.contains(host)) {
    return refuse(link,
                  fmt::format("host {0} is drained: 'dlaunchctl undrain {0}' on host {1} lets "
                              "it come back",
                              host, plan_.host));
  }
  if (!listener_.expected(join.login)) {
    return refuse(link, fmt::format("what started this dlaunch on host {} has ended", host));
  }
  if (!join.run.empty() && join.run != run_) {
    if (!plan_.nodes.elects()) return links_.send(link, NodeClear{});
    return refuse(link, fmt::format("the job that host {} was in is over", host));
  }
  Remote& remote = remotes_.at(link);
  if (join.run.empty() && awaits_earlier()) return static_cast<void>(remote.waits = join);
  if (!join.found.empty() && (!was_ || roster_.begun())) {
    return links_.send(link, NodeClear{});
  }
  if (!roster_.begun()) return take_in(link, join);
  remote.waits = join;
  judge(HostHealth::Comes{link, host});
}

void NodeMembership::take_in(Link link, const NodeJoin& join) {
  Remote& remote = remotes_.at(link);
  remote.addresses = {{escaped(join.master_addr), static_cast<std::uint16_t>(join.master_port)},
                      join.ports};
  remote.found = join.found;
  warn_of_nat(link, escaped(join.host));
  feed(NodeRoster::Join{link, escaped(join.host), join.number, join.nproc});
}

// Once for each host; where --interface says what the ranks listen on we do not know it.
void NodeMembership::warn_of_nat(Link link, const std::string& host) {
  if (!plan_.interface.empty()) return;
  const auto warning =
      nat_warning(host, remotes_.at(link).addresses.master.host, links_.address(link));
  if (!warning.empty() && behind_nat_.insert(host).second) log_warn("{}", warning);
}

void NodeMembership::refuse(Link link, const std::string& why) {
  log_warn("refused a host at {}: {}", links_.address(link), why);
  links_.send(link, NodeRefused{why});
  links_.close(link);
}

// -- In a job that has begun

void NodeMembership::judge(const HostHealth::Event& event) {
  if (finished_) return;
  for (const auto& action : health_.step(steady_now(), event)) {
    if (const auto* test = std::get_if<HostHealth::Test>(&action)) {
      links_.send(test->link, NodeTest{});
    } else if (const auto* admit = std::get_if<HostHealth::Admit>(&action)) {
      auto& waits = remotes_.at(admit->link).waits;
      const auto asks = std::exchange(waits, std::nullopt);
      if (asks) take_in(admit->link, *asks);
    } else if (const auto* tell = std::get_if<HostHealth::Tell>(&action)) {
      log_warn("{}", tell->line);
    }
  }
}

void NodeMembership::beat() {
  const auto now = steady_now();
  if (awaits_earlier() && now > earlier_until_) open_to_all();
  if (const auto next = health_.deadline(); next && now >= *next) judge(HostHealth::Clock{});
}

// -- Under a new leader

// Those that were in the job have had their time; without any of them it is over.
void NodeMembership::open_to_all() {
  open_to_all_ = true;
  const bool any = std::any_of(remotes_.begin(), remotes_.end(), [this](const auto& remote) {
    return roster_.node_of(remote.first).has_value();
  });
  if (!any && !roster_.begun()) begin_anew();
  std::vector<std::pair<Link, NodeJoin>> waiting;
  for (auto& [link, remote] : remotes_) {
    if (remote.waits) waiting.emplace_back(link, std::move(*remote.waits));
    remote.waits.reset();
  }
  for (const auto& [link, asks] : waiting) {
    if (remotes_.contains(link)) join(link, asks);
  }
}

}  // namespace dlaunch
