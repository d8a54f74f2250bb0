#include "launcher/lead/membership/node_membership.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"
#include "launcher/lead/monitor/progress_watch.h"

namespace dlaunch {
namespace {

// For the hosts of a job that began under another leader: they learn of this leader at once.
constexpr Duration kForEarlier = std::chrono::seconds(5);
// The clock error of a host without an answered ping.
constexpr Duration kUnknownClock = std::chrono::seconds(1);

constexpr NodeRoster::Link kOwnLink = 0;  // the store's begin with 1

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

NodeMembership::NodeMembership(asio::io_context& loop, const Plan& plan,
                               std::optional<JobJournal> was, Listener listener)
    : plan_(plan),
      listener_(std::move(listener)),
      was_(std::move(was)),
      roster_(fresh_roster()),
      links_(loop, plan.nodes.host_timeout,
             {.opened = [this](Link link) { remotes_[link] = {}; },
              .message = [this](Link link, const NodeMessage& what) { message(link, what); },
              .closed = [this](Link link) { closed(link); },
              .beat = [this] { beat(); }}),
      health_(static_cast<std::uint64_t>(steady_now().time_since_epoch().count())),
      roster_timer_(loop) {
  if (auto name = random_hex(8)) run_ = *name;
  if (was_ && !plan.nodes.slurm_job.empty()) begin_requeued();
  if (was_) fits(*was_, plan) ? go_on_from(*was_) : begin_anew();
}

// If the journal is of this job before it was requeued, Slurm has ended all workers in it.
void NodeMembership::begin_requeued() {
  const auto was = std::exchange(was_, std::nullopt);
  if (was->slurm_job != plan_.nodes.slurm_job || was->requeued >= plan_.nodes.requeued) return;
  first_round_ = was->job.round + 1;
  before_ = JobCore::left_of(was->job);
  log_warn("Slurm has started job {} again: going on after round {}, {} of {} restarts used",
           was->slurm_job, was->job.round, before_->restarts_used,
           format_restart_limit(plan_.max_restarts));
}

void NodeMembership::go_on_from(const JobJournal& was) {
  run_ = was.run;
  size_ = was.size;
  std::vector<NodeRoster::Node> nodes;
  for (const auto& host : was.hosts) nodes.push_back({NodeRoster::kNone, host.name, host.nproc});
  std::vector<Slot> used(nodes.size());
  for (const int node : was.nodes) {
    homes_.push_back({node, used[static_cast<std::size_t>(node)]++});
  }
  const int own = plan_.nodes.own_number();
  if (own >= 0) {
    nodes[static_cast<std::size_t>(own)].link = kOwnLink;
    nodes[static_cast<std::size_t>(own)].host = plan_.host;
  }
  roster_ = NodeRoster(steady_now(), roster_config(plan_), std::move(nodes), was.led, own);
  earlier_until_ = steady_now() + std::min(kForEarlier, plan_.join_timeout / 2);
}

// Its rounds get later numbers than those of the job before.
void NodeMembership::begin_anew() {
  log_warn("nothing is left of an earlier job '{}'; it begins anew", plan_.job_id);
  first_round_ = was_->job.round + 1;
  was_.reset();
  homes_.clear();
  roster_ = fresh_roster();
}

NodeRoster NodeMembership::fresh_roster() const {
  return {steady_now(),
          roster_config(plan_),
          {kOwnLink, plan_.host, plan_.nproc},
          plan_.nodes.own_number()};
}

void NodeMembership::serve(StoreServer& store, Addresses own) {
  links_.serve(store);
  own_addresses_ = std::move(own);
}

void NodeMembership::gather() {
  if (!plan_.nodes.several()) {
    lay_out();
    return listener_.begin();
  }
  log_info("waiting for hosts at {}: {}", plan_.store_listen, roster_.who_is_here());
  links_.start();
  arm();
}

// -- Connections

void NodeMembership::message(Link link, const NodeMessage& message) {
  const auto node = roster_.node_of(link);
  if (const auto* asks = std::get_if<NodeJoin>(&message)) {
    if (!node) join(link, *asks);
  } else if (const auto* tested = std::get_if<NodeTested>(&message)) {
    judge(HostHealth::Tested{link, escaped(tested->why)});
  } else if (node && roster_.begun()) {
    take(*node, message);
  }
}

void NodeMembership::closed(Link link) {
  remotes_.erase(link);
  judge(HostHealth::Gone{link});
  if (!finished_) feed(NodeRoster::Gone{link});
}

// -- Membership

void NodeMembership::arm() {
  const auto deadline = roster_.deadline();
  if (!deadline) return static_cast<void>(roster_timer_.cancel());
  roster_timer_.expires_at(*deadline);
  roster_timer_.async_wait([this](asio::error_code error) {
    if (!error) feed(NodeRoster::Clock{});
  });
}

void NodeMembership::feed(const NodeRoster::Event& event) {
  for (const auto& action : roster_.step(steady_now(), event)) {
    if (const auto* no = std::get_if<NodeRoster::Refuse>(&action)) {
      if (links_.is_open(no->link)) refuse(no->link, no->why);
    } else if (std::holds_alternative<NodeRoster::Begin>(action)) {
      lay_out();
      for (int node = 0; node < nodes(); ++node) welcome(node);
      listener_.begin();
      if (was_ && !open_to_all_) open_to_all();
    } else if (const auto* lost = std::get_if<NodeRoster::Lost>(&action)) {
      const std::string host = node_at(lost->node).host;
      listener_.input(lost->node, false);
      if (released_.erase(lost->node) > 0) {
        log_warn("host {} has left", host);
        listener_.tell(JobCore::NodeLost{lost->node});
        continue;
      }
      log_warn("lost host {}", host);
      listener_.lost(lost->node, host);
    } else if (const auto* back = std::get_if<NodeRoster::Back>(&action)) {
      log_warn("host {} has joined", node_at(back->node).host);
      welcome(back->node);
      listener_.back(back->node, node_at(back->node).host);
    } else if (const auto* end = std::get_if<NodeRoster::GiveUp>(&action)) {
      listener_.give_up(end->why);
    }
  }
  if (!roster_.begun()) log_info("{}", roster_.who_is_here());
  arm();
}

void NodeMembership::welcome(int node) {
  if (node == own() || !is_here(node)) return;
  order(node, NodeWelcome{.number = node,
                          .slots = slots_of(node),
                          .run = plan_.nodes.outlives_leader() ? run_ : "",
                          .led_by = plan_.host,
                          .still_after = still_after()});
  links_.watch_clock(node_at(node).link);
}

Duration NodeMembership::still_after() const {
  return ProgressWatch::still_after(plan_.hang_timeout, plan_.hang_warning);
}

// -- Slots

void NodeMembership::lay_out() {
  if (was_) return;
  const auto& all = roster_.nodes();
  std::vector<int> used(all.size());
  const auto add = [&](std::size_t node) {
    homes_.push_back({static_cast<int>(node), used[node]++});
  };
  for (std::size_t node = 0; node < all.size(); ++node) {
    for (int i = 0; i < all[node].nproc; ++i) add(node);
  }
  size_ = static_cast<int>(homes_.size());
  for (int i = 0; i < plan_.spares; ++i) add(static_cast<std::size_t>(i) % all.size());
  for (std::size_t node = 0; node < all.size(); ++node) {
    const int expected = all[node].nproc == 0 ? plan_.nodes.nproc_of(node, plan_.nproc) : 0;
    for (int i = 0; i < expected; ++i) add(node);
  }
  for (int i = size_; all.size() == 1 && i < plan_.max_nproc; ++i) add(0);
}

JobConfig NodeMembership::shape(JobConfig config) const {
  config.size = size_;
  config.max_size = static_cast<int>(homes_.size()) - config.spares;
  config.min_size = std::min(config.min_size, size_);
  config.first_round = first_round_;
  config.before = before_;
  for (const Home& home : homes_) config.nodes.push_back(home.node);
  return config;
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

JobJournal NodeMembership::journal(const JobRecord& record) const {
  JobJournal journal{
      .run = run_, .size = size_, .hosts = {}, .nodes = {}, .drained = {}, .job = record};
  for (const auto& node : roster_.nodes()) {
    if (node.host == plan_.host && node.nproc > 0) {
      journal.led = static_cast<int>(journal.hosts.size());
    }
    journal.hosts.push_back({node.host, node.nproc});
  }
  for (const Home& home : homes_) journal.nodes.push_back(home.node);
  journal.slurm_job = plan_.nodes.slurm_job;
  journal.requeued = plan_.nodes.requeued;
  return journal;
}

int NodeMembership::slots_of(int node) const {
  return static_cast<int>(std::count_if(homes_.begin(), homes_.end(),
                                        [=](const Home& home) { return home.node == node; }));
}

Slot NodeMembership::job_slot(int node, Slot slot) const {
  const auto is = [=](const Home& home) { return home.node == node && home.slot == slot; };
  const auto found = std::find_if(homes_.begin(), homes_.end(), is);
  return found == homes_.end() ? -1 : static_cast<Slot>(found - homes_.begin());
}

std::string NodeMembership::host_of(Slot slot) const { return node_at(home_of(slot).node).host; }

std::optional<Slot> NodeMembership::own_slot(Slot slot) const {
  const Home& home = home_of(slot);
  return home.node == own() ? std::optional(home.slot) : std::nullopt;
}

// -- Messages from nodes

void NodeMembership::take(int node, const NodeMessage& message) {
  if (const auto* spawned = std::get_if<NodeSpawned>(&message)) {
    tell(node, JobCore::Spawned{spawned->slot});
  } else if (const auto* failed = std::get_if<NodeStartFailed>(&message)) {
    on(node, *failed);
  } else if (const auto* not_started = std::get_if<NodeNotStarted>(&message)) {
    tell(node, JobCore::Ended{not_started->slot, true});
  } else if (const auto* stuck = std::get_if<NodeUnkillable>(&message)) {
    tell(node, JobCore::Unkillable{stuck->slot});
  } else if (const auto* ready = std::get_if<NodeReady>(&message)) {
    tell(node, JobCore::Ready{ready->slot, ready->left, ready->version, ready->why});
  } else if (const auto* progress = std::get_if<NodeProgress>(&message)) {
    tell(node, JobCore::Progress{progress->slot, progress->version});
  } else if (const auto* replace = std::get_if<NodeReplace>(&message)) {
    tell(node, JobCore::Replace{replace->slot, replace->kind});
  } else if (const auto* ended = std::get_if<NodeEnded>(&message)) {
    on(node, *ended);
  } else if (const auto* signal = std::get_if<NodeSignal>(&message)) {
    on(node, *signal);
  } else if (const auto* input = std::get_if<NodeInputWanted>(&message)) {
    listener_.input(node, input->wants);
  } else {
    listener_.monitor(node, message);
  }
}

void NodeMembership::on(int node, const NodeSignal& signal) {
  const bool of_a_pod = plan_.nodes.leader_returns && signal.number == SIGTERM;
  if (of_a_pod && listener_.leaves(node)) return;
  if (plan_.nodes.signalled_by_all() && !is_news(node, signal.number)) return;
  if (!plan_.nodes.steps_signal_workers() || ends_the_job(signal.number)) {
    listener_.tell(JobCore::Signal{signal.number});
  } else if (own_ != nullptr) {
    own_->take(NodeHandOn{signal.number});  // those of the steps have got it already
  }
}

bool NodeMembership::is_news(int node, int signal) {
  const int times = ++seen_[{node, signal}];
  if (times <= most_seen_[signal]) return false;
  most_seen_[signal] = times;
  return true;
}

// Replaces the node's slot by the job's; drops events with an unknown slot.
void NodeMembership::tell(int node, JobCore::Event event) {
  const bool known = std::visit(
      [&](auto& what) {
        if constexpr (requires { what.slot; }) what.slot = job_slot(node, what.slot);
        if constexpr (requires { what.slot; }) return what.slot >= 0;
        return true;
      },
      event);
  if (known) listener_.tell(event);
}

void NodeMembership::on(int node, const NodeEnded& ended) {
  const Slot slot = job_slot(node, ended.slot);
  if (slot < 0) return;
  WorkerEnd end = ended.end;
  if (node != own()) {
    end.host = host_of(slot);
    end.ended = std::min(end.ended, steady_now());
    end.started = std::min(end.started, end.ended);
    if (end.traceback) end.traceback->begun = std::min(end.traceback->begun, end.ended);
    end.clock_error = links_.clock_error(node_at(node).link).value_or(kUnknownClock);
  }
  listener_.ended(slot, end);
}

void NodeMembership::on(int node, const NodeStartFailed& failed) {
  const Slot slot = job_slot(node, failed.slot);
  if (slot < 0) return;
  SpawnError error = failed.error;
  if (node != own()) error.what = fmt::format("on host {}: {}", host_of(slot), error.what);
  listener_.start_failed(slot, error);
  listener_.tell(JobCore::SpawnFailed{slot});
}

void NodeMembership::set_own(NodePort& node) {
  own_ = &node;
  node.begin(still_after());
}

bool NodeMembership::is_here(int node) const { return node_at(node).link != NodeRoster::kNone; }

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

void NodeMembership::give_input(int node, const std::string& bytes) {
  if (!finished_) order(node, NodeInput{bytes});
}

void NodeMembership::release(int node, const std::string& why, int exit_code) {
  if (!is_here(node)) return;
  released_.insert(node);
  order(node, NodeFinish{exit_code, why});
}

std::vector<std::string> NodeMembership::host_names() const {
  std::vector<std::string> names;
  for (const auto& node : roster_.nodes()) names.push_back(node.host);
  return names;
}

}  // namespace dlaunch
