// How hosts join the job.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "elastic/admission.h"
#include "launcher/lead/membership/node_membership.h"
#include "launcher/wire/nat.h"

namespace dlaunch {

void NodeMembership::join(Link link, const NodeJoin& join) {
  const std::string host = escaped(join.host);
  const auto admission = admit(
      {.host = host, .job = escaped(join.job), .run = join.run, .has_workers = !join.found.empty()},
      {.job = what_must_agree(plan_),
       .run = run_,
       .leader = plan_.host,
       .elects = plan_.nodes.elects(),
       .drained = kept_out_.contains(host),
       .starter_gone = !listener_.expected(join.login),
       .continues = was_.has_value(),
       .awaits_earlier = awaits_earlier(),
       .begun = roster_.begun()});
  switch (admission.answer) {
    case Admission::Answer::refuse:
      return refuse(link, admission.why);
    case Admission::Answer::clear:
      return links_.send(link, NodeClear{});
    case Admission::Answer::take_in:
      return take_in(link, join);
    case Admission::Answer::wait:
    case Admission::Answer::test:
      remotes_.at(link).waits = join;
  }
  if (admission.answer == Admission::Answer::test) judge(HostHealth::Comes{link, host});
}

void NodeMembership::take_in(Link link, const NodeJoin& join) {
  Remote& remote = remotes_.at(link);
  remote.addresses = {{escaped(join.master_addr), static_cast<std::uint16_t>(join.master_port)},
                      join.ports};
  remote.found = join.found;
  warn_of_nat(link, escaped(join.host));
  feed(NodeRoster::Join{link, escaped(join.host), join.number, join.nproc});
}

// Once for each host; with --interface we do not know the address on which ranks listen.
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

// -- In a running job

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

// The time for hosts of the earlier job is over; if none came, so is that job.
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
