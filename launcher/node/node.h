// Node: dlaunch's work for a job on one host: starts the workers, informs them of rounds, monitors
// them, and reports how they end. It takes orders and reports as NodeMessage
// (launcher/wire/node_message.h), whether its leader is in this process or on another host. An
// asio shell around NodeDriver and NodeMonitor; one thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <asio/io_context.hpp>

#include "elastic/job_core.h"
#include "launcher/node/mpi/mpi_servers.h"
#include "launcher/node/node_driver.h"
#include "launcher/node/watch/node_monitor.h"
#include "launcher/node/worker_channel.h"
#include "launcher/node/workers/processes.h"
#include "launcher/node/workers/terminal_lender.h"
#include "launcher/node/workers/worker_starter.h"
#include "launcher/output/output_hub.h"
#include "launcher/process/job_dir.h"
#include "launcher/wire/node_message.h"
#include "launcher/wire/node_port.h"
#include "rendezvous/worker_message.h"

namespace dlaunch {

class Node final : public NodePort, private NodeDriver::Effects {
 public:
  // Sends to the leader.
  using Say = std::function<void(const NodeMessage&)>;
  // All parts must outlive the node.
  struct Parts {
    asio::io_context& loop;
    const JobDir& job_dir;
    WorkerStarter& starter;
    OutputHub& hub;
    Pump& pump;
    std::set<pid_t>& helpers;  // children that are no workers
    MpiServers& mpi;
  };
  // common: the part that is the same for all workers: the store, the secret, MASTER_PORT. Error:
  // the socket in the job's folder cannot be made.
  ~Node() { hub_.on_tail(nullptr); }
  static Result<std::unique_ptr<Node>> open(const Parts& parts, int slots, Duration grace,
                                            const WorkerPlace& common, Say say);

  // -- NodePort
  void begin(Duration still_after) override { monitor_.begin(still_after); }
  // Does what the leader wants. It ignores messages that are not for a node, or that name a slot
  // which this node does not have. Call it from within an event of the pump.
  void take(const NodeMessage& message) override;
  // The store in which workers meet from the next round on.
  void set_store(const std::string& url) { common_.store_url = url; }
  // Kills all workers and cancels pending starts.
  void kill_all();
  // The node has at least so many slots from now on: a later leader may have more work for it.
  void grow(int slots);
  // The numbers of rounds begin again: nothing remains of earlier rounds. No worker runs.
  void forget_rounds();
  void on_clock() { driver_.on_clock(); }  // deadline() has passed
  std::optional<TimePoint> deadline() const { return driver_.deadline(); }

  // Ends what workers that have ended left behind; see Processes.
  void end_leftovers() { processes_.end_leftovers(); }
  // The job is over: stops monitoring, and ends what workers left behind.
  void finish();
  const Processes& processes() const { return processes_; }

 private:
  Node(const Parts& parts, int slots, Duration grace, const WorkerPlace& common, Say say);
  void on(const NodeStart& start);
  void on(const NodeStop& stop) { driver_.stop(stop.slots, stop.signal); }
  void on(const NodeHandOn& pass);
  void on(const NodeFence& fence);
  void on(const NodeAnnounce& announce);
  void on(const NodeTail& tail) { hub_.ask_tail(tail.slot, tail.lasts, tail.again); }
  template <class Other>
  void on(const Other& other) {
    static_assert(!kIsForNode<Other>);
    if constexpr (kIsForMonitor<Other>) monitor_.on(other);
  }
  void drop_old_round_dirs();
  void on_ready(const Ready& ready, pid_t pid);
  void on_progress(const ProgressNotice& progress);
  void on_cut_off(int worker);
  void on_ended(Slot slot, const WorkerEnd& end);
  void on_child_changed();
  std::string round_dir(int round);
  void show_stopped(Slot slot) const;
  void tell_output(Slot slot, std::uint64_t lost, std::vector<OutputTail::Line> lines);

  // -- NodeDriver::Effects
  TimePoint now() override { return steady_now(); }
  SpawnError spawn(Slot slot, int rank, int round) override;
  void perform(const AgentCore::SendSignal& send) override;
  NodeStuck look_at_stuck(Slot slot) override;
  void say(const NodeMessage& message) override { say_(message); }

  int slots_;
  const JobDir& job_dir_;
  const WorkerStarter& starter_;
  MpiServers& mpi_;
  const Say say_;
  NodeDriver driver_;
  Processes processes_;
  std::optional<TerminalLender> lender_;  // set if debuggers use the terminal
  NodeMonitor monitor_;
  std::unique_ptr<WorkerChannel> channel_;
  WorkerPlace common_;
  OutputHub& hub_;
  LocalRanks shown_;                 // of this host's members
  std::map<Slot, int> local_ranks_;  // of workers being started
  int last_worker_ = 0;
  int last_round_dir_ = 0;
  bool has_round_dir_ = false;
};

}  // namespace dlaunch
