// Machine: what making a Plan asks of the machine it runs on. The command line hands in the real
// one; tests make their own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/result.h"
#include "launcher/placement/gpus.h"
#include "launcher/placement/nics.h"
#include "launcher/placement/topology.h"

namespace dlaunch {

enum class FileKind { absent, plain, executable, folder };

struct Machine {
  UsableCpus cpus;
  std::string hostname;
  std::string full_name;  // with its domain, where it has one
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;

  // Costs some milliseconds: called only where placement is asked for.
  std::function<Result<Topology>()> topology;
  // Those that the driver's files tell of.
  std::function<std::vector<GpuFiles>()> gpus;
  // How many of PyTorch's other kinds there are: "xpu"; nullopt: no kind of accelerator.
  std::function<std::optional<int>(std::string_view kind)> accelerators;
  // InfiniBand's and RoCE's.
  std::function<std::vector<Hca>()> hcas;
  // The numeric address of a host that is this machine: "localhost" -> "127.0.0.1". A name that is
  // not ours or not known is an Error.
  std::function<Result<std::string>(const std::string& host)> local_address;
  // The one of this machine itself: "127.0.0.1", or "::1" where only that is up.
  std::function<std::string()> loopback;
  // The numeric address of ours from which packets to that host go out.
  std::function<Result<std::string>(const std::string& host)> address_towards;
  // The one that --interface chooses.
  std::function<Result<std::string>(const std::string& wanted)> interface_address;
  // The numeric address of ours that other hosts may know; loopback if there is none.
  std::function<std::string()> any_address;
  // The working folder, by the name that the user's shell has for it.
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
  // What the program flux prints for these arguments.
  std::function<Result<std::string>(const std::vector<std::string>& words)> ask_flux;
  // Of the job, as squeue tells it or SLURM_JOB_END_TIME; nullopt: no limit, or none known.
  std::function<std::optional<Duration>(const std::string& job)> slurm_time_left;
};

Machine this_machine();

}  // namespace dlaunch
