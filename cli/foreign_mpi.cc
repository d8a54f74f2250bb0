// The options of mpirun, from `mpirun --help full` of Open MPI 4 and prterun's of Open MPI 5, and
// of mpiexec, from MPICH's `mpiexec --help` and Intel MPI's names for the same.

#include "base/text.h"
#include "base/units.h"
#include "cli/foreign_tables.h"

namespace dlaunch {
namespace {

using Values = std::vector<std::string>;

// Frameworks of mpirun itself, not of the MPI library in the workers.
constexpr std::string_view kOfMpirun[] = {"orte_",
                                          "prte_",
                                          "plm",
                                          "ras",
                                          "rmaps",
                                          "odls",
                                          "routed",
                                          "grpcomm",
                                          "state",
                                          "iof",
                                          "hwloc_base_binding",
                                          "rtc",
                                          "filem",
                                          "schizo"};

Result<Meaning> mca(const Values& values) {
  for (const auto own : kOfMpirun) {
    if (values[0].starts_with(own)) {
      return not_here("'{}' is a parameter of mpirun itself, which dlaunch has not; leave it out",
                      values[0]);
    }
  }
  return Meaning{.words = {fmt::format("--env=OMPI_MCA_{}={}", values[0], values[1])}};
}

Result<Meaning> pmix_mca(const Values& values) {
  return Meaning{.words = {fmt::format("--env=PMIX_MCA_{}={}", values[0], values[1])}};
}

Result<Meaning> ppr(const Values& values) {
  const auto colon = values[0].find(':');
  if (colon == std::string::npos) return not_here("'{}' is not N:RESOURCE", values[0]);
  return per_resource(std::string_view(values[0]).substr(0, colon),
                      std::string_view(values[0]).substr(colon + 1));
}

// Judges the words of `--map-by A:B=N` that are left without ppr.
Result<Meaning> map_by(const Values& values) {
  const std::string& text = values[0];
  const auto parts = split_words(text, ':');
  if (parts.empty()) return not_here("its value is empty");
  const bool ppr = parts[0] == "ppr";
  if (ppr && parts.size() < 3) return not_here("'{}' is not ppr:N:RESOURCE", text);
  for (std::size_t i = ppr ? 3 : 1; i < parts.size(); ++i) {
    const std::string name = lower_case(parts[i].substr(0, parts[i].find('=')));
    if (name == "pe" || name == "pe-list") {
      return not_here(
          "dlaunch deals out cores in equal shares, not by their number; use --bind core");
    }
    if (name != "oversubscribe" && name != "nooversubscribe" && name != "hwtcpus" &&
        name != "corecpus" && name != "inherit" && name != "noinherit" && name != "span") {
      return not_here("'{}' is a modifier that dlaunch does not have; leave it out", parts[i]);
    }
  }
  if (ppr) return per_resource(parts[1], parts[2]);
  for (const auto in_order : {"slot", "core", "hwthread"}) {
    if (parts[0] == in_order) return Meaning{.note = "ranks fill the hosts in their order"};
  }
  if (parts[0] == "numa" || parts[0] == "socket" || parts[0] == "package" ||
      parts[0] == "l3cache") {
    return not_here(
        "ranks are placed in order, neighbours together, and not in turns; use --bind {} for where "
        "they sit",
        parts[0] == "package"   ? "socket"
        : parts[0] == "l3cache" ? "l3"
                                : parts[0]);
  }
  return not_here("ranks are placed in order (slot), and '{}' is another order; leave it out",
                  parts[0]);
}

Result<Meaning> rank_by(const Values& values) {
  const auto word = std::string_view(values[0]).substr(0, values[0].find(':'));
  for (const auto in_order : {"slot", "fill", "core", "hwthread"}) {
    if (word == in_order) return Meaning{.note = "ranks are numbered in the order of their places"};
  }
  return not_here("ranks are numbered in the order of their places; leave it out");
}

Result<Meaning> per_host(const Values& values) {
  return Meaning{.words = {"--nproc=" + values[0]},
                 .warning = fmt::format("{} workers on each host, as mpirun means it; srun's -N is "
                                        "--nnodes",
                                        values[0])};
}

Result<Meaning> in_all(const Values& values) {
  return Meaning{.words = {"--np=" + values[0]},
                 .warning = fmt::format("{} workers in all, as mpirun means it; srun's -c is "
                                        "--omp-threads",
                                        values[0])};
}

Result<Meaning> env_pair(const Values& values) {
  return Meaning{.words = {"--env=" + values[0] + "=" + values[1]}};
}

// mpiexec's pattern: %r rank, %h host.
Result<Meaning> prepend_pattern(const Values& values) {
  std::string text;
  for (std::size_t i = 0; i < values[0].size(); ++i) {
    if (values[0][i] != '%' || i + 1 == values[0].size()) {
      text += values[0][i];
      continue;
    }
    const char what = values[0][++i];
    if (what != 'r' && what != 'h' && what != '%') {
      return not_here("dlaunch knows %r and %h in it, not %{}", what);
    }
    text += what == 'r' ? "${rank}" : what == 'h' ? "${hostname}" : "%";
  }
  return Meaning{.words = {"--log-line-prefix-template=" + text}};
}

Result<Meaning> gpus_per_proc(const Values& values) {
  if (values[0] == "auto") return Meaning{.note = "each worker sees all GPUs, as is the default"};
  if (values[0] == "1") return Meaning{.words = {"--isolate-gpus"}};
  return not_here(
      "a worker sees one GPU with --isolate-gpus, or all; set CUDA_VISIBLE_DEVICES in "
      "the program for others");
}

constexpr const char* kSeesScheduler =
    "dlaunch sees by itself that it runs in a job of a scheduler";

Result<Meaning> resource_manager(const Values& values) {
  for (const char* known : {"user", "slurm", "pbs", "lsf", "sge", "none"}) {
    if (values[0] == known) return Meaning{.note = kSeesScheduler};
  }
  return not_here(
      "dlaunch reads its hosts from Slurm, PBS, LSF, Grid Engine and Kubernetes; name others by "
      "--hostfile");
}

Result<Meaning> membind(const Values& values) {
  for (const char* local : {"none", "firsttouch", "local"}) {
    if (values[0] == local) return Meaning{.note = "memory is where the thread that uses it runs"};
  }
  return not_here("memory is where the thread that uses it runs: use --bind numa");
}

constexpr std::string_view kNoServer = "dlaunch has no server of this kind; leave it out";
constexpr std::string_view kNoCopies =
    "dlaunch copies no files of the program; put it on a file system that all hosts share";
constexpr std::string_view kReport = "the report tells of every worker in any case";
constexpr std::string_view kOwnDebugging =
    "use --stop-at-start or --debugger; dlaunchctl stacks shows where workers are";
constexpr std::string_view kOwnCpus =
    "dlaunch shares out the CPUs that it may use: taskset -c LIST dlaunch --bind core";
constexpr std::string_view kFixedRanks =
    "ranks fill the hosts in their order; use --hosts for the order and --bind for the cores";
constexpr std::string_view kShares = "dlaunch deals out cores in equal shares; use --bind core";
constexpr std::string_view kPidsBy = "dlaunch prints none; dlaunchctl status has the pids";
constexpr std::string_view kNotHere = "leave this host out of --hosts or the hostfile";
constexpr std::string_view kInherited = "workers inherit the environment in any case";
constexpr std::string_view kLessEnvironment =
    "workers inherit the environment: env -i NAME=VALUE … dlaunch starts them with less";
constexpr std::string_view kRestarts = "use --max-restarts to go on after a failure";

constexpr ForeignOption kMpirun[] = {
    {"mca gmca omca gomca", 2, Fate::ours,
     "--env=OMPI_MCA_NAME=VALUE; parameters of mpirun itself are refused", mca},
    {"pmixmca gpmixmca", 2, Fate::ours, "--env=PMIX_MCA_NAME=VALUE", pmix_mca},
    {"prtemca", 2, Fate::refused, "it sets a parameter of mpirun itself; leave it out"},
    {"am tune", 1, Fate::refused,
     "dlaunch reads no parameter files; use --mca NAME VALUE or --env OMPI_MCA_NAME=VALUE"},
    {"N", 1, Fate::ours, "--nproc={} (srun's -N is --nnodes)", per_host},
    {"c", 1, Fate::ours, "--np={} (srun's -c is --omp-threads)", in_all},
    {"pernode", 0, Fate::ours, "--nproc=1"},
    {"npersocket", 1, Fate::ours, "--nproc={}:socket"},
    {"ppr", 1, Fate::ours, "--nproc=N:RESOURCE", ppr},
    {"map-by", 1, Fate::ours,
     "ppr:N:RESOURCE is --nproc=N:RESOURCE; slot, core and hwthread are the order of ranks in any "
     "case; other orders are refused",
     map_by},
    {"rank-by", 1, Fate::nothing, "ranks are numbered in the order of their places", rank_by},
    {"bycore byslot", 0, Fate::nothing, "ranks fill the hosts in their order in any case"},
    {"bynode", 0, Fate::refused, kFixedRanks},
    {"bind-to-none", 0, Fate::ours, "--bind=none"},
    {"bind-to-core", 0, Fate::ours, "--bind=core"},
    {"bind-to-socket", 0, Fate::ours, "--bind=socket"},
    {"cpu-set cpu-list", 1, Fate::refused, kOwnCpus},
    {"cpus-per-proc cpus-per-rank", 1, Fate::refused, kShares},
    {"rankfile rf", 1, Fate::refused, kFixedRanks},
    {"use-hwthread-cpus", 0, Fate::nothing, "dlaunch counts hardware threads as CPUs"},
    {"cartofile cf", 1, Fate::refused, "dlaunch finds out how the machine is built by itself"},
    {"default-hostfile", 1, Fate::ours, "--hostfile={}"},
    {"wd", 1, Fate::ours, "--chdir={}"},
    {"do-not-launch", 0, Fate::ours, "--dry-run"},
    {"display-map display-devel-map display-diffable-map display-topo display-allocation "
     "display-devel-allocation",
     0, Fate::ours, "--report-bindings"},
    {"display", 1, Fate::ours, "--report-bindings"},
    {"show-progress debug-daemons leave-session-attached debug-devel d", 0, Fate::ours,
     "--verbose"},
    {"debug-daemons-file", 0, Fate::refused, "dlaunch writes no such file; use --verbose"},
    {"tv debug-on", 0, Fate::refused, kOwnDebugging},
    {"stop-on-exec stop-in-init", 0, Fate::refused, kOwnDebugging},
    {"stop-in-app", 0, Fate::refused, kOwnDebugging},
    {"continuous enable-recovery", 0, Fate::refused, kRestarts},
    {"disable-recovery", 0, Fate::nothing, "a failure ends the job unless --max-restarts is given"},
    {"with-ft", 1, Fate::refused, kRestarts},
    {"do-not-resolve enable-instant-on-support fwd-mpirun-port novm use-regexp no-ready-msg "
     "daemonize set-sid",
     0, Fate::nothing, "it changes how mpirun reaches its daemons, which dlaunch has not"},
    {"noprefix no-app-prefix", 0, Fate::nothing, "dlaunch adds no prefix to PATH"},
    {"prefix app-prefix pmix-prefix", 1, Fate::refused,
     "dlaunch sets no library paths; hosts get this shell's PATH, and --env LD_LIBRARY_PATH=… the "
     "rest"},
    {"path", 1, Fate::refused, "dlaunch looks in PATH: PATH=… dlaunch …"},
    {"personality", 1, Fate::nothing, "dlaunch sees by itself which MPI a program has"},
    {"get-stack-traces", 0, Fate::refused,
     "dlaunchctl stacks shows where workers are while the job runs"},
    {"report-state-on-timeout report-child-jobs-separately", 0, Fate::nothing, kReport},
    {"report-pid report-uri report-events", 1, Fate::refused, kPidsBy},
    {"output-proctable", 0, Fate::refused, kPidsBy},
    {"merge-stderr-to-stdout", 0, Fate::refused,
     "each stream stays its own; use dlaunch … 2>&1 to see both as one"},
    {"index-argv-by-rank", 0, Fate::refused,
     "use the macro ${rank} in the program's name or arguments"},
    {"nolocal", 0, Fate::refused, kNotHere},
    {"nooversubscribe no-oversubscribe", 0, Fate::refused,
     "max_slots= in the hostfile bounds the workers of a host"},
    {"max-vm-size", 1, Fate::refused, "dlaunch has no daemons; use --hosts to choose hosts"},
    {"preload-files", 1, Fate::refused, kNoCopies},
    {"preload-binary s", 0, Fate::refused, kNoCopies},
    {"set-cwd-to-session-dir", 0, Fate::refused, "use --chdir for the workers' folder"},
    {"dvm system-server", 0, Fate::refused, kNoServer},
    {"dvm-uri hnp ompi-server keepalive pset singleton", 1, Fate::refused, kNoServer},
    {"add-host add-hostfile", 1, Fate::refused,
     "hosts come and go by --host-discovery-script and --nnodes MIN:MAX"},
    {"runtime-options rto", 1, Fate::refused, "use dlaunch's own options for it"},
    {"stream-buffering", 1, Fate::nothing, "dlaunch shows what is written at once"},
    {"forward-signals", 1, Fate::nothing,
     "dlaunch passes on SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 in any case"},
    {"initial-errhandler", 1, Fate::refused, "the program sets it by MPI_Comm_set_errhandler"},
    {"memory-alloc-kinds", 1, Fate::refused, "the program asks for it at MPI_Session_init"},
    {"gpu-support", 1, Fate::ours, "--env=OMPI_MCA_gpu_support={}"},
    {"xml parseable parsable", 0, Fate::refused, "--error-file writes how the job ended as JSON"},
    {"xml-file", 1, Fate::refused, "--error-file writes how the job ended as JSON"},
    {"xterm", 1, Fate::refused, "dlaunch opens no windows; --only-rank shows one rank's output"},
    {"exec-agent", 1, Fate::refused, "name that program before yours: dlaunch … AGENT program"},
    {"tm nw", 0, Fate::nothing, "it is an option of an mpirun that is long gone"},
};

constexpr ForeignOption kMpiexec[] = {
    {"genv env", 2, Fate::ours, "--env=NAME=VALUE", env_pair},
    {"genvlist envlist", 1, Fate::nothing, kInherited},
    {"genvall envall", 0, Fate::nothing, kInherited},
    {"genvnone envnone", 0, Fate::refused, kLessEnvironment},
    {"genvexcl envexcl", 1, Fate::refused, kLessEnvironment},
    {"bootstrap-exec", 1, Fate::ours, "--ssh-command={}"},
    {"enable-x", 0, Fate::refused, "ssh passes on no X11; use --ssh-command 'ssh -X'"},
    {"disable-x", 0, Fate::nothing, "dlaunch passes on no X11"},
    {"rmk", 1, Fate::nothing, kSeesScheduler, resource_manager},
    {"topolib", 1, Fate::nothing, "dlaunch looks at the machine by hwloc in any case"},
    {"membind", 1, Fate::nothing, "memory is where the thread that uses it runs", membind},
    {"demux", 1, Fate::nothing, "dlaunch waits for its workers by epoll"},
    {"info", 0, Fate::ours, "--version"},
    {"print-all-exitcodes", 0, Fate::nothing, kReport},
    {"print-rank-map", 0, Fate::ours, "--report-bindings"},
    {"profile", kAfterEquals, Fate::refused, "dlaunch measures no time of its own; use --verbose"},
    {"prepend-pattern", 1, Fate::ours, "--log-line-prefix-template, with %r and %h",
     prepend_pattern},
    {"outfile-pattern errfile-pattern", 1, Fate::refused,
     "use --log-dir, which has a file for each rank and stream"},
    {"nameserver", 1, Fate::refused, kNoServer},
    {"disable-auto-cleanup", 0, Fate::refused, kRestarts},
    {"enable-auto-cleanup", 0, Fate::nothing, "a failure ends all workers in any case"},
    {"disable-hostname-propagation", 0, Fate::nothing, "each host goes by its own name"},
    {"order-nodes", 1, Fate::refused, kFixedRanks},
    {"localhost", 1, Fate::ours, "--interface={}"},
    {"usize", 1, Fate::refused, "no ranks are added to an MPI program that runs; leave it out"},
    {"pmi-port", 0, Fate::nothing, "MPI programs reach dlaunch by PMI_FD or PMIx"},
    {"skip-launch-node", 0, Fate::refused, kNotHere},
    {"gpus-per-proc", 1, Fate::ours, "1 is --isolate-gpus", gpus_per_proc},
};

}  // namespace

Result<Meaning> per_resource(std::string_view count, std::string_view resource) {
  auto number = parse_int(std::string(count), 1, 65536, "N");
  if (!number) return number.error();
  if (resource == "node") return Meaning{.words = {fmt::format("--nproc={}", *number)}};
  for (const auto& [theirs, ours] :
       {std::pair("numa", "numa"), std::pair("socket", "socket"), std::pair("package", "socket"),
        std::pair("l3cache", "l3"), std::pair("core", "core"), std::pair("hwthread", "cpu"),
        std::pair("gpu", "gpu")}) {
    if (resource == theirs) return Meaning{.words = {fmt::format("--nproc={}:{}", *number, ours)}};
  }
  return not_here("dlaunch counts by node, socket, numa, l3cache, core and hwthread, not by '{}'",
                  resource);
}

std::span<const ForeignOption> mpirun_options() { return kMpirun; }
std::span<const ForeignOption> mpiexec_options() { return kMpiexec; }

}  // namespace dlaunch
