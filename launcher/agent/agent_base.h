// AgentBase: the common base of the agent that leads a job and of one that follows: the loop, the
// user's signals (the keeper passes them on), the output, and the worker starter.
#pragma once

#include <memory>
#include <optional>
#include <set>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/secret.h"
#include "elastic/pump.h"
#include "launcher/node/node.h"
#include "launcher/node/workers/worker_ports.h"
#include "launcher/node/workers/worker_starter.h"
#include "launcher/output/output_hub.h"
#include "launcher/plan/plan.h"
#include "launcher/process/job_dir.h"
#include "launcher/process/keeper.h"
#include "launcher/wire/deadline_timer.h"

namespace dlaunch {

class AgentBase {
 protected:
  AgentBase(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
            const OriginalSignals& original);
  virtual ~AgentBase() = default;

  // Checks the kernel, reads the secret, prepares the worker starter. False: failed() said why.
  bool set_up();
  void open_output();
  // Holds the workers' ports: MASTER_PORT, 0 for a free one, and what the plan wants for ranks.
  Result<void> reserve_ports(int master_port);
  // Prints the error in one line. Returns false.
  bool failed(int exit_code, const Error& error);
  // Runs the loop until leave(); returns the exit code.
  int run_loop();
  // Ends run_loop() once all output is out.
  void leave(int exit_code);

  Result<std::unique_ptr<Node>> open_node(int slots, Node::Say say);
  void arm_timer(TimePoint deadline) { timer_.arm(deadline); }

  virtual void on_signal(int signal) = 0;
  virtual void on_timer() = 0;
  // Called when all pending events are handled.
  virtual void on_idle() = 0;

  const Plan& plan_;
  const JobDir& job_dir_;
  asio::io_context loop_{1};
  Pump pump_{[this] { on_idle(); }};
  Secret secret_;
  WorkerPlace common_;  // the part that is the same for all workers
  WorkerPorts ports_;
  std::unique_ptr<OutputHub> hub_;
  std::optional<WorkerStarter> starter_;
  std::set<pid_t> helpers_;  // children that are no workers
  std::optional<MpiServers> mpi_;
  // By --timeout. The wait for the job's hosts counts, too.
  const TimePoint job_ends_at_;
  int exit_code_ = 0;

 private:
  void watch_keeper();

  const OriginalSignals original_;
  asio::posix::stream_descriptor keeper_;
  DeadlineTimer timer_;
  unsigned char signal_byte_ = 0;
};

}  // namespace dlaunch
