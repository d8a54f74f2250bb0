// NodeMembership: the nodes of a job at its leader: the leader's own node, and the nodes of other
// hosts behind a connection. The job numbers its slots itself, and each is a slot of some node.
// This class translates between the two numbers, and reports lost hosts and hosts that are back. An
// asio shell around NodeRoster and HostHealth; one thread, the loop's.
// The job's slots, in order: first those of the workers at the start, node by node; then the
// spares, one for each node in turn; then those that the job may grow to, on hosts that are still
// to come.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "base/endpoint.h"
#include "elastic/host_health.h"
#include "elastic/job_core.h"
#include "elastic/node_roster.h"
#include "launcher/plan/plan.h"
#include "launcher/wire/job_journal.h"
#include "launcher/wire/node_links.h"
#include "launcher/wire/node_message.h"
#include "launcher/wire/node_port.h"
#include "rendezvous/store_server.h"

namespace dlaunch {

class NodeMembership {
 public:
  struct Listener {
    std::function<void()> begin;  // all expected hosts have joined
    std::function<void(const std::string& why)> give_up;
    // An event for the job, with the job's slots.
    std::function<void(const JobCore::Event&)> tell;
    // A host was lost, or is back, once begun; feed the job NodeLost, or NodeBack.
    std::function<void(int node, const std::string& host)> lost;
    std::function<void(int node, const std::string& host)> back;
    // Kubernetes ends that node's pod. True: the job goes on without it; false: the job ends.
    std::function<bool(int node)> leaves;
    std::function<void(Slot, const WorkerEnd&)> ended;
    std::function<void(Slot, const SpawnError&)> start_failed;
    // Whether a dlaunch may join that names this login as its starter (node_message.h).
    std::function<bool(int login)> expected;
    // A host wants the next piece of our stdin, or none until further notice.
    std::function<void(int node, bool wants)> input;
    // A message of a node's NodeMonitor.
    std::function<void(int node, const NodeMessage&)> monitor;
  };
  struct Home {  // of a slot of the job
    int node;
    Slot slot;  // of that node's
  };
  // `plan` must outlive it. was: the journal of a job that had begun under another leader, or under
  // this one before a restart. Its hosts are awaited; if none of them comes in time, nothing is
  // left of that job, and a new one begins.
  NodeMembership(asio::io_context& loop, const Plan& plan, std::optional<JobJournal> was,
                 Listener listener);

  // Our first round's number.
  int first_round() const { return first_round_; }
  // Hosts of the earlier job may still come.
  bool awaits_earlier() const { return was_ && !roster_.begun() && !open_to_all_; }
  // For the store that serves the other hosts, which must outlive it.
  NodeListener for_store() { return links_.for_store(); }
  // The addresses on which workers of a host may listen.
  struct Addresses {
    Endpoint master;                  // used if rank 0 runs there
    std::vector<std::int32_t> ports;  // by local rank; empty: no rank has one
  };
  // own: of this host.
  void serve(StoreServer& store, Addresses own);
  // Begins at once if there is only this host.
  void gather();

  // -- Once begun
  // Completes the job's configuration with its sizes and nodes.
  JobConfig shape(JobConfig config) const;
  // The remaining state of a job that goes on.
  std::optional<JobCore::Resume> resumed() const;
  // Hosts that the previous leader kept out of the job that goes on.
  std::vector<JobJournal::Drained> drained_before() const {
    return was_ ? was_->drained : std::vector<JobJournal::Drained>();
  }
  // For the next leader.
  JobJournal journal(const JobRecord& record) const;
  // Nodes that have not joined yet.
  std::vector<int> absent() const;
  // Other hosts that have joined.
  std::vector<int> others_here() const;
  // 0 if this host leads without being part of the job.
  int own_slots() const { return slots_of(own()); }
  void set_own(NodePort& node);
  // A message of the own node.
  void own_says(const NodeMessage& message) { take(own(), message); }

  // -- Orders of the job
  void start(const JobCore::StartWorkers& start, const JobCore& job);
  void stop(const JobCore::StopWorkers& stop);
  void hand_on(const JobCore::HandOn& pass);
  void fence(const JobCore::Fence& fence);
  void announce(const JobCore::Announce& announce);
  // A piece of our stdin; "": its end.
  void give_input(int node, const std::string& bytes);
  // Informs all hosts; calls then() once each has got it, or has been silent for a lease.
  void finish(int exit_code, const std::string& why, std::function<void()> then);
  // Releases a host without workers of the job, with the reason.
  void release(int node, const std::string& why = "", int exit_code = 0);
  // Keeps a host of that name out of the job, or lets it in again.
  void keep_out(const std::string& host, bool out) {
    out ? void(kept_out_.insert(host)) : void(kept_out_.erase(host));
  }
  // By node; "": no host has had that number yet.
  std::vector<std::string> host_names() const;
  bool is_own(int node) const { return node == own(); }

  // Slurm sends a signal to several nodes: whether this node is the first to have got it that
  // often.
  bool is_news(int node, int signal);
  bool is_own_news(int signal) { return is_news(own(), signal); }

  void order(int node, const NodeMessage& message);
  std::string host_of(Slot slot) const;
  const Home& home_of(Slot slot) const { return homes_[static_cast<std::size_t>(slot)]; }
  // The job's slot for a slot of a node; -1: there is none.
  Slot job_slot(int node, Slot slot) const;
  // The own node's slot for a slot of the job.
  std::optional<Slot> own_slot(Slot slot) const;
  // A node is connected.
  bool is_here(int node) const;
  // The node was heard within two beats.
  bool is_heard(int node) const { return node == own() || links_.is_heard(node_at(node).link); }
  std::string who_is_here() const { return roster_.who_is_here(); }
  // The state of hosts that join a running job and are not accepted yet.
  std::vector<std::string> newcomers() const { return health_.words(steady_now()); }

 private:
  using Link = NodeRoster::Link;
  struct Remote {
    Addresses addresses;
    // Set until we know whether an earlier job goes on, or whether that host is healthy.
    std::optional<NodeJoin> waits;
    std::vector<NodeFound> found;
  };

  void message(Link link, const NodeMessage& message);
  void closed(Link link);
  void feed(const NodeRoster::Event& event);
  void on(int node, const NodeEnded& ended);
  void on(int node, const NodeStartFailed& failed);
  void take(int node, const NodeMessage& message);
  void on(int node, const NodeSignal& signal);
  void tell(int node, JobCore::Event event);
  void join(Link link, const NodeJoin& join);
  void take_in(Link link, const NodeJoin& join);
  void warn_of_nat(Link link, const std::string& host);
  void refuse(Link link, const std::string& why);
  void judge(const HostHealth::Event& event);
  void beat();
  NodeRoster fresh_roster() const;
  void go_on_from(const JobJournal& was);
  void begin_anew();
  void begin_requeued();
  void open_to_all();
  void lay_out();
  void welcome(int node);
  void order_all(const NodeMessage& message);
  Duration still_after() const;
  void arm();
  int slots_of(int node) const;
  std::vector<NodePlace> places_on(int node, const std::vector<JobCore::Place>& places,
                                   const std::vector<int>& ranks) const;
  const NodeRoster::Node& node_at(int node) const {
    return roster_.nodes()[static_cast<std::size_t>(node)];
  }
  int nodes() const { return static_cast<int>(roster_.nodes().size()); }
  int own() const { return roster_.own_number(); }
  std::vector<int> own_last() const;
  const Addresses& addresses_of(int node) const;
  std::vector<std::string> peers_of(const std::vector<int>& ranks, int size) const;

  const Plan& plan_;
  const Listener listener_;
  std::optional<JobJournal> was_;
  std::string run_;
  int first_round_ = 1;
  std::optional<JobConfig::Before> before_;
  TimePoint earlier_until_ = kNever;
  bool open_to_all_ = false;
  NodeRoster roster_;
  NodePort* own_ = nullptr;
  Addresses own_addresses_;
  std::map<Link, Remote> remotes_;
  std::vector<Home> homes_;                  // by slot of the job
  std::map<std::pair<int, int>, int> seen_;  // by node and signal
  std::map<int, int> most_seen_;             // by signal
  int size_ = 0;                             // at the start
  std::set<int> released_;
  std::set<std::string> kept_out_;
  std::set<std::string> behind_nat_;  // already reported
  bool finished_ = false;
  NodeLinks links_;
  HostHealth health_;
  asio::steady_timer roster_timer_;
};

}  // namespace dlaunch
