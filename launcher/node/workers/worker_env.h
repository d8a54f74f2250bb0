// What a worker sees: its environment and arguments. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/plan/plan.h"

namespace dlaunch {

inline constexpr std::string_view kNcclProfilerFile = "/libnccl-profiler-dlaunch.so";

// What the agent knows beyond the Plan when it starts a worker.
struct WorkerPlace {
  int round = 1;       // from 1
  int rank = 0;        // -1: a spare, which gets its rank later
  int size = 1;        // of the round
  int local_rank = 0;  // among those of this node; -1: a spare
  int local_size = 1;
  int node_rank = 0;  // among the nodes that have members
  int nodes = 1;
  int worker = 0;  // this process's number in the job: never used again
  std::string master_addr;
  int master_port = 0;
  bool one_world = true;           // all ranks of the round are new
  std::vector<std::string> peers;  // host:port held for each rank; empty: for none
  std::string rack;                // of this node; "": unknown
  int usable_cores = 1;            // of the whole node
  std::string store_url;           // "tcp://127.0.0.1:40000"
  std::string secret_file;
  std::string agent_socket;
  std::string round_dir;             // private folder of this round; "": there is none
  std::string error_file;            // TORCHELASTIC_ERROR_FILE
  std::string python_folder;         // the first of PYTHONPATH; "": none
  std::string nccl_profiler;         // the path of NCCL's profiler plug-in; "": there is none
  int heartbeat_fd = -1;             // its descriptor for heartbeats; -1: none
  std::uint64_t heartbeat_pipe = 0;  // the inode of its pipe
  // For MPI libraries:
  int pmi_fd = -1;                                        // inherited; -1: none
  std::vector<std::pair<std::string, std::string>> pmix;  // variables
  int appnum = 0;                                         // the number of its program
};

// `inherited` is our own environment, "K=V" each; an enclosing launcher's variables that would
// mislead the worker are left out, torchrun's and our own are set, and --env comes last.
std::vector<std::string> worker_environment(const Plan& plan, const WorkerPlace& place,
                                            const std::vector<std::string>& inherited);

// The rank's command with ${rank}, ${program_rank}, ${local_rank}, ${world_size},
// ${local_world_size}, ${node_rank}, ${host}, ${job_id}, ${round}, ${master_addr}, ${master_port}
// and ${debug_port} filled in; an IPv6 address before a colon gets brackets. $${rank} is ${rank}.
// Anything else in ${…} stays as it is.
std::vector<std::string> worker_arguments(const Plan& plan, const WorkerPlace& place);

}  // namespace dlaunch
