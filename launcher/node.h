// Node: all that dlaunch does on one host for a job: starts the workers the job wants, tells them
// of rounds, says how they end. An asio shell around NodeDriver; one thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <asio/io_context.hpp>

#include "elastic/job_core.h"
#include "elastic/node_driver.h"
#include "launcher/hosts/node_message.h"
#include "launcher/job_dir.h"
#include "launcher/mpi/mpi_servers.h"
#include "launcher/output/output_hub.h"
#include "launcher/process/processes.h"
#include "launcher/process/worker_starter.h"
#include "launcher/worker_channel.h"
#include "rendezvous/worker_message.h"

namespace dlaunch {

class Node final : private NodeDriver::Hands {
 public:
  // To the job.
  struct Listener {
    std::function<void(const JobCore::Event&)> tell;
    // The job is to be fed Ended for it.
    std::function<void(Slot, const WorkerEnd&)> ended;
    // Why the job hears of SpawnFailed next.
    std::function<void(Slot, const SpawnError&)> start_failed;
    // A child was stopped or continued, or has ended.
    std::function<void()> child_changed;
  };
  // What it is made of; all of it must outlive it.
  struct Parts {
    asio::io_context& loop;
    const JobDir& job_dir;
    WorkerStarter& starter;
    OutputHub& hub;
    Pump& pump;
    const std::set<pid_t>& helpers;  // children that are no workers
    MpiServers& mpi;
  };
  // common: what all workers are told alike: the store, the secret, MASTER_PORT.
  // Error: the socket in the job's folder cannot be made.
  static Result<std::unique_ptr<Node>> open(const Parts& parts, int slots, Duration grace,
                                            const WorkerPlace& common, Listener listener);

  // -- What the job wants: call these, and the driver, from within an event of the pump.
  NodeDriver& driver() { return driver_; }
  void start(const NodeStart& start);
  // Where workers meet from the next round on.
  void set_store(const std::string& url) { common_.store_url = url; }
  // Every round before that is over; lost: the rank that is the reason, or -1.
  void fence(int round, int lost);
  void announce(const NodeAnnounce& announce);

  // Ends what workers that have ended left behind; see Processes.
  void end_leftovers() { processes_.end_leftovers(); }
  void drop_old_round_dirs();
  Processes& processes() { return processes_; }

 private:
  Node(const Parts& parts, int slots, Duration grace, const WorkerPlace& common, Listener listener);
  void on_ready(const Ready& ready, pid_t pid);
  void on_progress(const ProgressNotice& progress);
  void on_cut_off(int worker);
  void on_ended(Slot slot, const WorkerEnd& end);
  std::string round_dir(int round);

  // -- NodeDriver::Hands
  TimePoint now() override { return steady_now(); }
  bool spawn(Slot slot, int rank, int round) override;
  void perform(const AgentCore::SendSignal& send) override;
  void tell(const JobCore::Event& event) override { listener_.tell(event); }

  const JobDir& job_dir_;
  const WorkerStarter& starter_;
  MpiServers& mpi_;
  const Listener listener_;
  NodeDriver driver_;
  Processes processes_;
  std::unique_ptr<WorkerChannel> channel_;
  WorkerPlace common_;
  OutputHub& hub_;
  LocalRanks shown_;                 // of this host's members
  std::map<Slot, int> local_ranks_;  // of those that are being started
  int last_worker_ = 0;
  int last_round_dir_ = 0;
  bool has_round_dir_ = false;
};

}  // namespace dlaunch
