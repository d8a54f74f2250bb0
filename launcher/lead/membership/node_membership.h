// NodeMembership: the nodes of a job at its leader: the leader's own node, and the nodes of other
// hosts. It decides which hosts join, when the job begins, and what a host is that is lost or comes
// back; it waits for the hosts of an earlier leader's job. Messages and orders pass through it,
// because a node knows its own slots only (job_slots.h). Pure: it takes events, and acts through
// Effects and Job.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "elastic/host_health.h"
#include "elastic/job_core.h"
#include "elastic/node_roster.h"
#include "launcher/lead/membership/job_slots.h"
#include "launcher/lead/membership/node_orders.h"
#include "launcher/plan/plan.h"
#include "launcher/wire/job_journal.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class NodeMembership {
 public:
  using Link = NodeRoster::Link;
  static constexpr Link kOwnLink = 0;  // to the own node; those of other hosts begin with 1

  // The links, the clock, and the user.
  class Effects {
   public:
    virtual ~Effects() = default;
    virtual TimePoint now() = 0;
    virtual void send(Link link, const NodeMessage& message) = 0;
    // Once the other end has what was sent. closed() follows, or comes within the call.
    virtual void close(Link link) = 0;
    // The other end has missed fewer than two beats.
    virtual bool is_heard(Link link) = 0;
    // The link is that of a node from now on: measure the offset of its clock.
    virtual void watch_clock(Link link) = 0;
    // The error of the times in its messages; nullopt: not measured yet.
    virtual std::optional<Duration> clock_error(Link link) = 0;
    virtual void say(LogLevel level, const std::string& words) = 0;
  };
  // The job at the leader.
  class Job {
   public:
    virtual ~Job() = default;
    virtual void begin() = 0;  // all expected hosts have joined
    virtual void give_up(const std::string& why) = 0;
    // With the job's slots.
    virtual void feed(const JobCore::Event& event) = 0;
    // Once begun. Feed the job NodeLost, or NodeBack.
    virtual void on_lost(int node, const std::string& host) = 0;
    virtual void on_back(int node, const std::string& host) = 0;
    // A released host has left. Feed the job NodeLost.
    virtual void on_left(int node) = 0;
    // Kubernetes ends that node's pod. True: the job goes on without it; false: the job ends.
    virtual bool leaves(int node) = 0;
    virtual void on_ended(Slot slot, WorkerEnd end) = 0;
    virtual void on_start_failed(Slot slot, const SpawnError& error) = 0;
    // Whether a dlaunch may join that names this login as its starter (node_message.h).
    virtual bool expects(int login) = 0;
    // A host can be given orders, or no longer; also before the job begins.
    virtual void on_linked(int node, bool here) = 0;
    // It has not logged in to another host.
    virtual void on_login_ended(int node, const NodeLoginEnded& ended) = 0;
    // A host wants the next piece of our stdin, or none until further notice.
    virtual void on_input_wanted(int node, bool wants) = 0;
    // dlaunchctl on another machine asks. Call answer().
    virtual void on_asked(NodeRoster::Link link, const std::string& request) = 0;
    // A message of a node's NodeMonitor.
    virtual void on_monitor(int node, const NodeMessage& message) = 0;
  };
  // plan, effects and job must outlive it. was: the journal of a job that had begun under another
  // leader, or under this one before a restart. Its hosts are awaited; if none of them comes in
  // time, nothing is left of that job, and a new one begins. run: a unique name for a new job.
  NodeMembership(const Plan& plan, std::optional<JobJournal> was, std::string run, Effects& effects,
                 Job& job);

  // Before gather(): of this host.
  void set_own_addresses(NodeAddresses own) { own_addresses_ = std::move(own); }
  // Begins at once if there is only this host.
  void gather();

  // -- Events
  void opened(Link link, const std::string& address) { remotes_[link] = {.address = address}; }
  void message(Link link, const NodeMessage& message);
  void closed(Link link);  // or silent for a lease
  std::optional<TimePoint> deadline() const;
  void on_clock();  // deadline() has passed

  // Our first round's number.
  int first_round() const { return first_round_; }
  // Hosts of the earlier job may still come.
  bool awaits_earlier() const { return was_ && !roster_.begun() && !open_to_all_; }
  // How long a worker stands still before its node reports it.
  Duration still_after() const;

  // -- Once begun
  // Completes the job's configuration with its sizes and nodes.
  JobConfig shape(JobConfig config) const;
  // The remaining state of a job that goes on.
  std::optional<JobCore::Resume> resumed() const;
  // Its ranks on that node under the previous leader, without those that had ended well.
  std::vector<int> ranks_before(int node) const;
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
  int own_slots() const { return slots_.count_on(own()); }

  // -- Orders of the job
  void start(const JobCore::StartWorkers& start, const JobCore& job);
  void stop(const JobCore::StopWorkers& stop) { order(orders(stop, slots_)); }
  void hand_on(const JobCore::HandOn& pass) { order_all(NodeHandOn{pass.signal}); }
  void fence(const JobCore::Fence& fence) { order_all(NodeFence{fence.round, fence.lost}); }
  void announce(const JobCore::Announce& announce) { order(orders(announce, slots_)); }
  void order(int node, const NodeMessage& message);
  // A piece of our stdin; "": its end.
  void give_input(int node, const std::string& bytes);
  // To a program that asks over the link, which then closes.
  void answer(Link link, const std::string& text);
  // Informs all other hosts. No host joins from now on.
  void finish(int exit_code, const std::string& why);
  // Releases a host without workers of the job, with the reason.
  void release(int node, const std::string& why = "", int exit_code = 0);
  // Keeps a host of that name out of the job, or lets it in again.
  void keep_out(const std::string& host, bool out) {
    out ? void(kept_out_.insert(host)) : void(kept_out_.erase(host));
  }

  // Slurm sends a signal to several nodes: whether this node is the first to have got it that
  // often.
  bool is_news(int node, int signal);
  bool is_own_news(int signal) { return is_news(own(), signal); }

  // -- Which node is which
  // By node; "": no host has had that number yet.
  std::vector<std::string> host_names() const;
  int here() const { return roster_.here(); }
  // The names of those that are connected.
  std::vector<std::string> hosts_here() const;
  bool is_own(int node) const { return node == own(); }
  // We lead from that host, whose node is another process: we were elected there.
  bool leads_beside(const std::string& host) const {
    return plan_.nodes.leads_only && host == plan_.host;
  }
  std::string host_of(Slot slot) const { return node_at(home_of(slot).node).host; }
  const JobSlots::Home& home_of(Slot slot) const { return slots_.home(slot); }
  // The job's slot for a slot of a node; -1: there is none.
  Slot job_slot(int node, Slot slot) const { return slots_.slot_of(node, slot); }
  // A node is connected.
  const std::string& name_of(int node) const { return node_at(node).host; }
  // The possible error of the node's times here.
  Duration clock_error(int node) const;
  bool is_here(int node) const { return node_at(node).link != NodeRoster::kNone; }
  // The node was heard within two beats.
  bool is_heard(int node) const { return node == own() || effects_.is_heard(node_at(node).link); }
  std::string who_is_here() const { return roster_.who_is_here(); }
  // The state of hosts that join a running job and are not accepted yet.
  std::vector<std::string> newcomers() const { return health_.words(effects_.now()); }

 private:
  struct Remote {
    std::string address = {};  // of its end of the link
    NodeAddresses addresses = {};
    // Set until we know whether an earlier job goes on, or whether that host is healthy.
    std::optional<NodeJoin> waits = {};
    std::vector<NodeFound> found = {};
  };

  // -- Joining
  NodeRoster fresh_roster() const;
  void go_on_from(const JobJournal& was);
  void begin_anew();
  void begin_requeued();
  void open_to_all();
  void join(Link link, const NodeJoin& join);
  void take_in(Link link, const NodeJoin& join);
  void warn_of_nat(Remote& remote, const std::string& host);
  bool have_racks() const;
  void warn_of_no_rack(int node);
  void refuse(Link link, const std::string& why);
  void judge(const HostHealth::Event& event);
  void feed(const NodeRoster::Event& event);
  void lost(int node);
  void begin();
  void welcome(int node);

  // -- Messages of nodes
  void take(int node, const NodeMessage& message);
  void on(int node, const NodeNotStarted& what) { tell(node, JobCore::Ended{what.slot, true}); }
  void on(int, const NodeLoginEnded&) {}  // taken before
  void on(int node, const NodeInputWanted& what) { job_.on_input_wanted(node, what.wants); }
  void on(int node, const NodeEnded& ended);
  void on(int node, const NodeStartFailed& failed);
  void on(int node, const NodeSignal& signal);
  void tell(int node, JobCore::Event event);

  void order(const std::vector<NodeOrder>& orders);
  void order_all(const NodeMessage& message);
  const NodeRoster::Node& node_at(int node) const {
    return roster_.nodes()[static_cast<std::size_t>(node)];
  }
  int nodes() const { return static_cast<int>(roster_.nodes().size()); }
  int own() const { return roster_.own_number(); }
  std::string own_rack() const {
    return plan_.nodes.rack_of(plan_.nodes.own_number(), plan_.host, plan_.nodes.rack);
  }
  void warn(const std::string& words) { effects_.say(LogLevel::warn, words); }

  const Plan& plan_;
  Effects& effects_;
  Job& job_;
  std::optional<JobJournal> was_;
  std::string run_;
  int first_round_ = 1;
  std::optional<JobConfig::Before> before_;
  TimePoint earlier_until_ = kNever;
  bool open_to_all_ = false;
  NodeRoster roster_;
  HostHealth health_;
  NodeAddresses own_addresses_;
  std::map<Link, Remote> remotes_;
  JobSlots slots_;
  std::map<std::pair<int, int>, int> seen_;  // by node and signal
  std::map<int, int> most_seen_;             // by signal
  std::set<int> released_;
  std::set<std::string> kept_out_;
  std::set<std::string> behind_nat_, rackless_;  // already reported
  bool finished_ = false;
};

}  // namespace dlaunch
