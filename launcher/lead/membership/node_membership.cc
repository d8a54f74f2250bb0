// How hosts join, and are lost.
#include "launcher/lead/membership/node_membership.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "elastic/admission.h"
#include "elastic/hang.h"
#include "elastic/rack_order.h"
#include "launcher/wire/nat.h"

namespace dlaunch {
namespace {

// For the hosts of a job that began under another leader: they learn of this leader at once.
constexpr Duration kForEarlier = std::chrono::seconds(5);

// A journal of another command line is of no use but for its numbers.
bool fits(const JobJournal& was, const Plan& plan) {
  const auto own = static_cast<std::size_t>(std::max(plan.nodes.own_number(), 0));
  if (was.hosts.size() != static_cast<std::size_t>(plan.nodes.max)) return false;
  return plan.nodes.own_number() < 0 || was.hosts[own].nproc == plan.nproc;
}

NodeRoster::Config roster_config(const Plan& plan) {
  return {
      .min_nodes = plan.nodes.min, .max_nodes = plan.nodes.max, .join_timeout = plan.join_timeout};
}

}  // namespace

NodeMembership::NodeMembership(const Plan& plan, std::optional<JobJournal> was, std::string run,
                               Effects& effects, Job& job)
    : plan_(plan),
      effects_(effects),
      job_(job),
      was_(std::move(was)),
      run_(std::move(run)),
      roster_(fresh_roster()),
      health_(static_cast<std::uint64_t>(effects.now().time_since_epoch().count())) {
  if (was_ && !plan.nodes.slurm_job.empty()) begin_requeued();
  if (was_) fits(*was_, plan) ? go_on_from(*was_) : begin_anew();
}

void NodeMembership::gather() {
  if (!plan_.nodes.several()) {
    slots_ = was_ ? slots_ : JobSlots::lay_out(roster_.nodes(), plan_);
    return job_.begin();
  }
  effects_.say(LogLevel::info, fmt::format("waiting for hosts at {}: {}", plan_.store_listen,
                                           roster_.who_is_here()));
}

// -- A job that began earlier

// If the journal is of this job before it was requeued, Slurm has ended all workers in it.
void NodeMembership::begin_requeued() {
  const auto was = std::exchange(was_, std::nullopt);
  if (was->slurm_job != plan_.nodes.slurm_job || was->requeued >= plan_.nodes.requeued) return;
  first_round_ = was->job.round + 1;
  before_ = JobCore::left_of(was->job);
  warn(
      fmt::format("Slurm has started job {} again: going on after round {}, {} of {} restarts used",
                  was->slurm_job, was->job.round, before_->restarts_used,
                  format_restart_limit(plan_.max_restarts)));
}

void NodeMembership::go_on_from(const JobJournal& was) {
  run_ = was.run;
  slots_ = JobSlots(was.nodes, was.size);
  std::vector<NodeRoster::Node> nodes;
  for (const auto& host : was.hosts) {
    nodes.push_back({NodeRoster::kNone, host.name, host.nproc, host.rack});
  }
  const int own = plan_.nodes.own_number();
  if (own >= 0) {
    NodeRoster::Node& ours = nodes[static_cast<std::size_t>(own)];
    ours.link = kOwnLink;
    ours.host = plan_.host;
    ours.rack = own_rack();
  }
  const TimePoint now = effects_.now();
  roster_ = NodeRoster(now, roster_config(plan_), std::move(nodes), was.led, own);
  earlier_until_ = now + std::min(kForEarlier, plan_.join_timeout / 2);
}

// Its rounds get later numbers than those of the job before.
void NodeMembership::begin_anew() {
  warn(fmt::format("found nothing of an earlier job '{}'; the job starts from the beginning",
                   plan_.job_id));
  first_round_ = was_->job.round + 1;
  was_.reset();
  roster_ = fresh_roster();
}

NodeRoster NodeMembership::fresh_roster() const {
  return {effects_.now(),
          roster_config(plan_),
          {kOwnLink, plan_.host, plan_.nproc, own_rack()},
          plan_.nodes.own_number()};
}

// The time for hosts of the earlier job is over; if none came, so is that job.
void NodeMembership::open_to_all() {
  open_to_all_ = true;
  const bool any = std::ranges::any_of(
      remotes_, [this](const auto& remote) { return roster_.node_of(remote.first).has_value(); });
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

std::optional<JobCore::Resume> NodeMembership::resumed() const {
  if (!was_) return std::nullopt;
  JobCore::Resume resume{was_->job, {}};
  for (const auto& [link, remote] : remotes_) {
    const auto node = roster_.node_of(link);
    for (const NodeFound& found : remote.found) {
      const Slot slot = node ? job_slot(*node, found.slot) : -1;
      if (slot < 0) continue;
      resume.found.push_back({slot, found.done, found.linked, found.ready, found.in_round,
                              found.round, found.version});
    }
  }
  return resume;
}

std::vector<int> NodeMembership::ranks_before(int node) const {
  std::vector<int> ranks;
  if (!was_) return ranks;
  const JobRecord& was = was_->job;
  for (std::size_t rank = 0; rank < was.roster.size(); ++rank) {
    const Slot slot = was.roster[rank];
    const bool done = std::ranges::find(was.done, slot) != was.done.end();
    if (home_of(slot).node == node && !done) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

JobJournal NodeMembership::journal(const JobRecord& record) const {
  JobJournal journal{.run = run_, .size = slots_.size(), .nodes = slots_.nodes(), .job = record};
  for (const auto& node : roster_.nodes()) {
    if (node.host == plan_.host && node.nproc > 0) {
      journal.led = static_cast<int>(journal.hosts.size());
    }
    journal.hosts.push_back({node.host, node.nproc, node.rack});
  }
  journal.slurm_job = plan_.nodes.slurm_job;
  journal.requeued = plan_.nodes.requeued;
  return journal;
}

// -- A host asks to join

void NodeMembership::join(Link link, const NodeJoin& join) {
  const std::string host = escaped(join.host);
  const auto admission = admit({.host = host,
                                .job = escaped(join.job),
                                .build = join.build,
                                .run = join.run,
                                .has_workers = !join.found.empty()},
                               {.job = what_must_agree(plan_),
                                .run = run_,
                                .build = wire_fingerprint(),
                                .leader = plan_.host,
                                .elects = plan_.nodes.elects(),
                                .drained = kept_out_.contains(host),
                                .starter_gone = !job_.expects(join.login),
                                .continues = was_.has_value(),
                                .awaits_earlier = awaits_earlier(),
                                .begun = roster_.begun()});
  switch (admission.answer) {
    case Admission::Answer::refuse:
      return refuse(link, admission.why);
    case Admission::Answer::clear:
      return effects_.send(link, NodeClear{});
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
  const std::string host = escaped(join.host);
  warn_of_nat(remote, host);
  std::string rack = escaped(join.rack);
  if (!is_rack(rack)) rack.clear();
  feed(NodeRoster::Join{link, host, join.number, join.nproc,
                        plan_.nodes.rack_of(join.number, host, rack)});
  if (const auto node = roster_.node_of(link)) job_.on_linked(*node, true);
}

// Once for each host; with --interface we do not know the address on which ranks listen.
void NodeMembership::warn_of_nat(Remote& remote, const std::string& host) {
  if (!plan_.interface.empty()) return;
  const auto warning = nat_warning(host, remote.addresses.master.host, remote.address);
  if (!warning.empty() && behind_nat_.insert(host).second) warn(warning);
}

bool NodeMembership::have_racks() const {
  return !plan_.nodes.racks.empty() ||
         std::ranges::any_of(roster_.nodes(), [](const auto& node) { return !node.rack.empty(); });
}

// Once for each host. Others have racks.
void NodeMembership::warn_of_no_rack(int node) {
  const NodeRoster::Node& one = node_at(node);
  if (!is_here(node) || !one.rack.empty() || !rackless_.insert(one.host).second) return;
  warn(fmt::format("host {} {}, so it counts as a rack of its own", one.host,
                   plan_.nodes.racks.empty() ? "has no --rack as others have"
                                             : "is not in " + plan_.nodes.topology));
}

void NodeMembership::refuse(Link link, const std::string& why) {
  warn(fmt::format("refused a host at {}: {}", remotes_.at(link).address, why));
  effects_.send(link, NodeRefused{why});
  effects_.close(link);
}

// The job runs: a host must be healthy.
void NodeMembership::judge(const HostHealth::Event& event) {
  if (finished_) return;
  for (const auto& action : health_.step(effects_.now(), event)) {
    if (const auto* test = std::get_if<HostHealth::Test>(&action)) {
      effects_.send(test->link, NodeTest{});
    } else if (const auto* admit = std::get_if<HostHealth::Admit>(&action)) {
      const auto asks = std::exchange(remotes_.at(admit->link).waits, std::nullopt);
      if (asks) take_in(admit->link, *asks);
    } else if (const auto* tell = std::get_if<HostHealth::Tell>(&action)) {
      warn(tell->line);
    }
  }
}

// -- Membership

void NodeMembership::closed(Link link) {
  remotes_.erase(link);
  judge(HostHealth::Gone{link});
  if (const auto node = roster_.node_of(link)) job_.on_linked(*node, false);
  if (!finished_) feed(NodeRoster::Gone{link});
}

std::optional<TimePoint> NodeMembership::deadline() const {
  if (finished_ || !plan_.nodes.several()) return std::nullopt;
  const TimePoint next =
      std::min({roster_.deadline().value_or(kNever), health_.deadline().value_or(kNever),
                awaits_earlier() ? earlier_until_ : kNever});
  return next == kNever ? std::nullopt : std::optional(next);
}

void NodeMembership::on_clock() {
  const TimePoint now = effects_.now();
  if (awaits_earlier() && now >= earlier_until_) open_to_all();
  judge(HostHealth::Clock{});
  if (!finished_ && now >= roster_.deadline().value_or(kNever)) feed(NodeRoster::Clock{});
}

void NodeMembership::feed(const NodeRoster::Event& event) {
  for (const auto& action : roster_.step(effects_.now(), event)) {
    if (const auto* no = std::get_if<NodeRoster::Refuse>(&action)) {
      if (remotes_.contains(no->link)) refuse(no->link, no->why);
    } else if (std::holds_alternative<NodeRoster::Begin>(action)) {
      begin();
    } else if (const auto* gone = std::get_if<NodeRoster::Lost>(&action)) {
      lost(gone->node);
    } else if (const auto* back = std::get_if<NodeRoster::Back>(&action)) {
      const std::string host = node_at(back->node).host;
      warn(fmt::format("host {} has joined", host));
      if (have_racks()) warn_of_no_rack(back->node);
      welcome(back->node);
      job_.on_back(back->node, host);
    } else if (const auto* end = std::get_if<NodeRoster::GiveUp>(&action)) {
      job_.give_up(end->why);
    }
  }
  if (!roster_.begun()) effects_.say(LogLevel::info, roster_.who_is_here());
}

void NodeMembership::begin() {
  if (!was_) slots_ = JobSlots::lay_out(roster_.nodes(), plan_);
  const bool by_rack = !was_ && have_racks();
  for (int node = 0; node < nodes(); ++node) {
    if (by_rack) warn_of_no_rack(node);
    welcome(node);
  }
  job_.begin();
  if (was_ && !open_to_all_) open_to_all();
}

void NodeMembership::lost(int node) {
  const std::string host = node_at(node).host;
  job_.on_input_wanted(node, false);
  if (released_.erase(node) > 0) {
    warn(fmt::format("host {} has left", host));
    return job_.on_left(node);
  }
  warn(fmt::format("lost host {}", host));
  job_.on_lost(node, host);
}

void NodeMembership::welcome(int node) {
  if (node == own() || !is_here(node)) return;
  order(node, NodeWelcome{.number = node,
                          .slots = slots_.count_on(node),
                          .run = plan_.nodes.outlives_leader() ? run_ : "",
                          .led_by = plan_.host,
                          .still_after = still_after()});
  effects_.watch_clock(node_at(node).link);
}

Duration NodeMembership::still_after() const {
  return report_still_after(plan_.hang_timeout, plan_.hang_warning);
}

std::vector<int> NodeMembership::absent() const {
  std::vector<int> found;
  for (int node = 0; node < nodes(); ++node) {
    if (!is_here(node)) found.push_back(node);
  }
  return found;
}

std::vector<int> NodeMembership::others_here() const {
  std::vector<int> found;
  for (int node = 0; node < nodes(); ++node) {
    if (node != own() && is_here(node)) found.push_back(node);
  }
  return found;
}

std::vector<std::string> NodeMembership::host_names() const {
  std::vector<std::string> names;
  for (const auto& node : roster_.nodes()) names.push_back(node.host);
  return names;
}

std::vector<std::string> NodeMembership::hosts_here() const {
  std::vector<std::string> names;
  for (int node = 0; node < nodes(); ++node) {
    if (is_here(node)) names.push_back(node_at(node).host);
  }
  return names;
}

JobConfig NodeMembership::shape(JobConfig config) const {
  config.nodes = slots_.nodes();
  config.size = slots_.size();
  for (const auto& node : roster_.nodes()) config.racks.push_back(node.rack);
  config.max_size = static_cast<int>(config.nodes.size()) - config.spares;
  config.min_size = std::min(config.min_size, config.size);
  config.first_round = first_round_;
  config.before = before_;
  return config;
}

}  // namespace dlaunch
