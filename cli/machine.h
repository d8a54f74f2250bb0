// Machine: the facts about this machine that a Plan needs. The command line passes the real one;
// tests make their own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/result.h"
#include "launcher/node/placement/gpus.h"
#include "launcher/node/placement/nics.h"
#include "launcher/node/placement/topology.h"

namespace dlaunch {

enum class FileKind { absent, plain, executable, folder };

struct Machine {
  UsableCpus cpus;
  std::string hostname;
  std::string full_name;  // with its domain, if it has one
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;
  bool has_terminal = false;  // and we are in its foreground

  // Takes some milliseconds: called only if placement is requested.
  std::function<Result<Topology>()> topology;
  // The GPUs in the driver's files.
  std::function<std::vector<GpuFiles>()> gpus;
  // The number of PyTorch's other accelerators of that kind ("xpu"); nullopt: not a kind.
  std::function<std::optional<int>(std::string_view kind)> accelerators;
  // The InfiniBand and RoCE adapters.
  std::function<std::vector<Hca>()> hcas;
  // The numeric address of a host that is this machine: "localhost" -> "127.0.0.1". Error: the
  // name is unknown, or not ours.
  std::function<Result<std::string>(const std::string& host)> local_address;
  // This machine's loopback: "127.0.0.1", or "::1" if only that is up.
  std::function<std::string()> loopback;
  // The numeric address of ours from which packets to that host leave.
  std::function<Result<std::string>(const std::string& host)> address_towards;
  // The address that --interface chooses.
  std::function<Result<std::string>(const std::string& wanted)> interface_address;
  // A numeric address of ours for other hosts; loopback if there is none.
  std::function<std::string()> any_address;
  // The working folder, by the user's shell's name for it.
  std::function<Result<std::string>()> folder;
  std::function<std::vector<std::string>()> whole_environment;  // "K=V"
  std::function<Result<std::string>(const std::string& path)> read_file;
  std::function<FileKind(const std::string& path)> file_kind;
  // Whether a file could be created or replaced there.
  std::function<Result<void>(const std::string& path)> can_create;
  // Whether the secret file holds a secret that only we can read.
  std::function<Result<void>(const std::string& path)> check_secret;
  Environment environment;
  std::function<std::string()> new_job_id;
  // The output of the program flux for these arguments.
  std::function<Result<std::string>(const std::vector<std::string>& words)> ask_flux;
  // The end of the job from squeue or SLURM_JOB_END_TIME; nullopt: no limit, or an unknown one.
  std::function<std::optional<Duration>(const std::string& job)> slurm_time_left;
};

Machine this_machine();

}  // namespace dlaunch
