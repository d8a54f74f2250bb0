// The options of deepspeed, from deepspeed/launcher/runner.py, and of horovodrun, from
// horovod/runner/launch.py.
#include "base/units.h"
#include "cli/foreign_tables.h"

namespace dlaunch {
namespace {

using Values = std::vector<std::string>;

// DeepSpeed names its levels in small letters, Horovod in capitals.
Result<Meaning> log_level(const Values& values) {
  const std::string& level = values[0];
  for (const char* horovods : {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"}) {
    if (level == horovods) return Meaning{.words = {"--env=HOROVOD_LOG_LEVEL=" + level}};
  }
  if (level == "debug" || level == "info") return Meaning{.words = {"--verbose"}};
  if (level == "warning") return Meaning{.note = "dlaunch shows warnings in any case"};
  if (level == "error" || level == "critical") return Meaning{.words = {"--quiet"}};
  return not_here("'{}' is not one of debug, info, warning, error, critical", level);
}

constexpr const char* kStartsHosts =
    "dlaunch starts its other hosts by ssh, or by the scheduler within its job";

Result<Meaning> launcher(const Values& values) {
  for (const char* known : {"pdsh", "openmpi", "mvapich", "slurm", "mpich", "impi", "ssh", "rsh",
                            "fork", "hydra", "pbs", "lsf", "sge"}) {
    if (values[0] == known) return Meaning{.note = kStartsHosts};
  }
  return not_here(
      "dlaunch does not start hosts by '{}'; use --ssh-command, or start dlaunch on each host",
      values[0]);
}

Result<Meaning> fusion_threshold(const Values& values) {
  auto mebibytes = parse_int(values[0], 0, 1 << 20, "MiB");
  if (!mebibytes) return mebibytes.error();
  return Meaning{.words = {fmt::format("--env=HOROVOD_FUSION_THRESHOLD={}",
                                       static_cast<long long>(*mebibytes) << 20)}};
}

// horovodrun's switch, and srun's --mpi=TYPE.
Result<Meaning> mpi(const Values& values) {
  if (!values.empty() && values[0] == "list") {
    return not_here("dlaunch speaks PMI-1 and PMIx; there is nothing to list");
  }
  return Meaning{.note = "MPI programs find dlaunch by PMI-1 or PMIx by themselves"};
}

// horovodrun's ssh port is a number; srun's partition is a name.
Result<Meaning> port_or_partition(const Values& values) {
  if (parse_int(values[0], 1, 65535, "port")) return Meaning{.words = {"--ssh-port=" + values[0]}};
  return not_here(
      "'{}' is not a port of ssh; for srun's partition, give it to salloc or sbatch and start "
      "dlaunch within",
      values[0]);
}

constexpr std::string_view kOwnDefault = "it is the default of Horovod";

constexpr ForeignOption kDeepspeed[] = {
    {"launcher bootstrap", 1, Fate::nothing, kStartsHosts, launcher},
    {"log-level", 1, Fate::ours,
     "small letters choose --verbose or --quiet, capitals are Horovod's: "
     "--env=HOROVOD_LOG_LEVEL={}",
     log_level},
    {"enable-each-rank-log", 1, Fate::ours, "--log-dir={} --output=files"},
    {"bind-cores-to-rank", 0, Fate::ours, "--bind=core"},
    {"bind-core-list", 1, Fate::refused,
     "dlaunch shares out the cores that it may use: taskset -c LIST dlaunch --bind core"},
    {"launcher-args", 1, Fate::refused,
     "they are for another program; --ssh-command 'ssh OPTIONS' has what ssh is to get"},
    {"no-local-rank", 0, Fate::nothing, "dlaunch adds no --local_rank to the program's arguments"},
    {"no-ssh", 0, Fate::refused,
     "start dlaunch on each host with --nnodes, --node-rank and --master-addr, and without a "
     "hostfile"},
    {"no-ssh-check", 0, Fate::nothing, "dlaunch logs in to each host once, to start the job"},
    {"force-multi", 0, Fate::nothing, "a job on one host takes the same way as one on several"},
    {"save-pid", 0, Fate::refused, "dlaunch writes no such file; dlaunchctl status has the pids"},
    {"autotuning", 1, Fate::refused, "dlaunch tunes no programs; use deepspeed for it"},
    {"venv-script", 1, Fate::refused,
     "other hosts get this shell's PATH: activate the environment before dlaunch"},
};

constexpr ForeignOption kHorovodrun[] = {
    {"disable-cache", 0, Fate::nothing, "dlaunch keeps no results of its checks of hosts"},
    {"fusion-threshold-mb", 1, Fate::ours, "--env=HOROVOD_FUSION_THRESHOLD={} in bytes",
     fusion_threshold},
    {"cycle-time-ms", 1, Fate::ours, "--env=HOROVOD_CYCLE_TIME={}"},
    {"cache-capacity", 1, Fate::ours, "--env=HOROVOD_CACHE_CAPACITY={}"},
    {"hierarchical-allreduce", 0, Fate::ours, "--env=HOROVOD_HIERARCHICAL_ALLREDUCE=1"},
    {"no-hierarchical-allreduce", 0, Fate::ours, "--env=HOROVOD_HIERARCHICAL_ALLREDUCE=0"},
    {"hierarchical-allgather", 0, Fate::ours, "--env=HOROVOD_HIERARCHICAL_ALLGATHER=1"},
    {"no-hierarchical-allgather", 0, Fate::ours, "--env=HOROVOD_HIERARCHICAL_ALLGATHER=0"},
    {"torus-allreduce", 0, Fate::ours, "--env=HOROVOD_TORUS_ALLREDUCE=1"},
    {"no-torus-allreduce", 0, Fate::ours, "--env=HOROVOD_TORUS_ALLREDUCE=0"},
    {"autotune", 0, Fate::ours, "--env=HOROVOD_AUTOTUNE=1"},
    {"no-autotune", 0, Fate::ours, "--env=HOROVOD_AUTOTUNE=0"},
    {"autotune-log-file", 1, Fate::ours, "--env=HOROVOD_AUTOTUNE_LOG={}"},
    {"autotune-warmup-samples", 1, Fate::ours, "--env=HOROVOD_AUTOTUNE_WARMUP_SAMPLES={}"},
    {"autotune-steps-per-sample", 1, Fate::ours, "--env=HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE={}"},
    {"autotune-bayes-opt-max-samples", 1, Fate::ours,
     "--env=HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES={}"},
    {"autotune-gaussian-process-noise", 1, Fate::ours,
     "--env=HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE={}"},
    {"timeline-filename", 1, Fate::ours, "--env=HOROVOD_TIMELINE={}"},
    {"timeline-mark-cycles", 0, Fate::ours, "--env=HOROVOD_TIMELINE_MARK_CYCLES=1"},
    {"no-timeline-mark-cycles", 0, Fate::ours, "--env=HOROVOD_TIMELINE_MARK_CYCLES=0"},
    {"no-stall-check", 0, Fate::ours, "--hang-warning=0 --env=HOROVOD_STALL_CHECK_DISABLE=1"},
    {"stall-check", 0, Fate::nothing, kOwnDefault},
    {"mpi-threads-disable", 0, Fate::ours, "--env=HOROVOD_MPI_THREADS_DISABLE=1"},
    {"no-mpi-threads-disable", 0, Fate::ours, "--env=HOROVOD_MPI_THREADS_DISABLE=0"},
    {"num-nccl-streams", 1, Fate::ours, "--env=HOROVOD_NUM_NCCL_STREAMS={}"},
    {"thread-affinity", 1, Fate::ours, "--env=HOROVOD_THREAD_AFFINITY={}"},
    {"gloo-timeout-seconds", 1, Fate::ours, "--env=HOROVOD_GLOO_TIMEOUT_SECONDS={}"},
    {"log-with-timestamp no-log-hide-timestamp", 0, Fate::ours, "--env=HOROVOD_LOG_HIDE_TIME=0"},
    {"log-without-timestamp log-hide-timestamp", 0, Fate::ours, "--env=HOROVOD_LOG_HIDE_TIME=1"},
    {"tcp", 0, Fate::nothing, "hosts are joined by TCP in any case"},
    {"gloo", 0, Fate::nothing, "the program chooses how its ranks communicate"},
    {"mpi", kAfterEquals, Fate::nothing, "MPI programs find dlaunch by PMI-1 or PMIx by themselves",
     mpi},
    {"p", 1, Fate::ours, "a number is --ssh-port={}; srun's partition is for salloc or sbatch",
     port_or_partition},
    {"jsrun", 0, Fate::refused, "dlaunch starts hosts by ssh or srun; leave it out"},
    {"mpi-args binding-args", 1, Fate::refused,
     "they are for another program; give dlaunch its own options, such as --bind"},
    {"slots-per-host slots", 1, Fate::refused,
     "the script of --host-discovery-script prints HOST:SLOTS for each host"},
    {"blacklist-cooldown-range", 2, Fate::nothing,
     "dlaunch tests a host that was lost before it joins again, and waits for no fixed time"},
};

}  // namespace

std::span<const ForeignOption> deepspeed_options() { return kDeepspeed; }
std::span<const ForeignOption> horovodrun_options() { return kHorovodrun; }

}  // namespace dlaunch
