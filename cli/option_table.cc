#include "cli/option_table.h"

#include <algorithm>
#include <cctype>

namespace dlaunch {
namespace {

constexpr OptionRow kTable[] = {
    // --- workers
    {"nproc", "",
     "nproc-per-node ppn perhost npernode ntasks-per-node tasks-per-node num-gpus num-accelerators",
     "N|auto|gpu|numa|socket|core|xpu", "1", Group::workers,
     "How many workers each host gets: a number, or one for each usable CPU (auto), GPU, NUMA "
     "node, "
     "socket or core. xpu, hpu, npu, mlu and musa count accelerators of other makers. 2:numa means "
     "two for each",
     &Options::nproc},
    {"np", "n", "ntasks num-proc num-processes", "N", "", Group::workers,
     "workers in total, as mpirun means it; fills the hosts in their order, on one machine the "
     "same "
     "as --nproc",
     &Options::np},
    {"multi-gpu", "", "", "", "", Group::workers,
     "If nothing else says how many workers to start, start one for each GPU", &Options::multi_gpu,
     kHidden},
    {"env", "x", "", "NAME[=VALUE]", "", Group::workers,
     "set a variable for the workers, or pass on ours; may be repeated", &Options::env, kNoEnv},
    {"chdir", "", "wdir workdir cwd D", "DIR", "", Group::workers,
     "start the workers in that folder", &Options::chdir},
    {"app", "", "", "FILE", "", Group::workers,
     "run the programs that the file lists, each on ranks of its own in one job: a line is '-np N "
     "[-x NAME=VALUE] [--chdir DIR] PROGRAM [ARGUMENT ...]', as between the ':' of a command line",
     &Options::app},
    {"multi-prog", "", "", "", "", Group::workers,
     "the program is a file that says which ranks run what, as for srun: '0-3,5 PROGRAM [ARGUMENT "
     "...]', or '*' for the other ranks",
     &Options::multi_prog, kNoEnv | kNoFile},
    {"module", "m", "", "", "", Group::workers,
     "the program is a Python module: run it with python3 -m, or with $PYTHON_EXEC",
     &Options::module, kNoEnv | kNoFile},
    {"run-path", "", "", "", "", Group::workers,
     "The program is a Python script, whatever its name and mode: run it with python3, or with "
     "$PYTHON_EXEC",
     &Options::run_path, kNoEnv | kNoFile},
    {"role", "", "", "NAME", "default", Group::workers, "The value of ROLE_NAME for the workers",
     &Options::role},
    {"no-python", "", "", "", "", Group::workers,
     "never put python3 before a program, not even before a file.py that cannot be executed",
     &Options::no_python},

    // --- placement
    {"bind", "", "bind-to", "none|core|l3|numa|socket|gpu", "none", Group::placement,
     "give each worker its own share of the cores, whole objects of that kind; gpu: those near the "
     "GPU of its local rank",
     &Options::bind},
    {"report-bindings", "", "", "", "", Group::placement, "draw which worker sits on which core",
     &Options::report_bindings},
    {"isolate-gpus", "", "", "", "", Group::placement,
     "let each worker see only the GPU of its local rank, by CUDA_VISIBLE_DEVICES",
     &Options::isolate_gpus},
    {"virtual-local-rank", "", "", "", "", Group::placement,
     "Like --isolate-gpus, and each worker's LOCAL_RANK is 0, the number of the only GPU that it "
     "sees",
     &Options::virtual_local_rank},
    {"numa-binding", "", "", "node|socket|core-complex|exclusive", "", Group::placement,
     "Bind workers as torchrun does: node and exclusive mean --bind gpu where there are GPUs and "
     "otherwise numa and core; socket means --bind socket and core-complex --bind l3",
     &Options::numa_binding},
    {"omp-threads", "", "num-cpu-threads-per-process", "auto|keep|N", "auto", Group::placement,
     "OMP_NUM_THREADS of the workers: their share of the usable CPUs, as it is, or a number; "
     "without "
     "this option their share, unless it is set already",
     &Options::omp_threads},

    // --- output
    {"output", "", "", "prefix|merged|raw|files|none", "prefix", Group::output,
     "lines with their rank, equal lines of several ranks as one, as it comes, only into "
     "--log-dir, or not at all",
     &Options::output},
    {"log-dir", "", "output-filename", "DIR", "", Group::output,
     "also write what workers print to DIR/round/rank/stdout and stderr", &Options::log_dir},
    {"redirects", "r", "", "0|1|2|3|R:N,...", "0", Group::output,
     "with --log-dir: streams that go only there: none, stdout (1), stderr (2), both (3)",
     &Options::redirects},
    {"tee", "t", "", "0|1|2|3|R:N,...", "0", Group::output,
     "with --redirects: streams that stay on the terminal all the same", &Options::tee},
    {"only-rank", "", "only-ranks local-ranks-filter", "R,...", "", Group::output,
     "show the lines of these ranks only: 0,2-5. Log files and the report have all",
     &Options::only_rank},
    {"timestamps", "", "timestamp timestamp-output prefix-timestamp prefix-output-with-timestamp",
     "", "", Group::output, "put the local time, to the millisecond, before each line",
     &Options::timestamps},
    {"label", "l", "tag-output prepend-rank", "", "", Group::output,
     "lines with their rank, as is the default", &Options::label, kHidden},
    {"log-line-prefix-template", "", "", "TEMPLATE", "", Group::output,
     "What dlaunch puts before each line instead of [RANK], with the macros ${rank}, "
     "${local_rank}, ${role_name} and ${hostname}",
     &Options::prefix_template},
    {"stdin", "i", "input", "none|all|RANK", "0", Group::output,
     "which workers read what we are given on stdin", &Options::stdin_to},

    // --- failure and time
    {"grace", "", "grace-period shutdown-timeout", "TIME", "10s", Group::failure,
     "between SIGTERM and SIGKILL when workers have to end: 30, 500ms, 2m", &Options::grace},
    {"timeout", "", "", "TIME", "", Group::failure,
     "end the job after that time, its wait for hosts included; 0 means never", &Options::timeout},
    {"end-signal", "", "", "none|SIGNAL@TIME", "TERM, 5s more than --grace", Group::failure,
     "what the workers get so long before Slurm's time for the job is up: USR1@5m",
     &Options::end_signal},
    {"max-restarts", "", "reset-limit", "N[/TIME]", "0", Group::failure,
     "after a failure go on, at most that often, or that often within any such time (10/1h): with "
     "elastic programs only the failed worker is replaced, with others all are started again",
     &Options::max_restarts},
    {"restart-scope", "", "", "auto|worker|node|job", "auto", Group::failure,
     "who is started again besides the failed worker: those that can't go on without it, nobody, "
     "all on its machine, or all; and those that have ended, but with worker only of an elastic "
     "program",
     &Options::restart_scope},
    {"no-restart-codes", "", "", "CODE,...", "", Group::failure,
     "exit codes of a worker that mean: do not start me again", &Options::no_restart_codes},
    {"same-failure-limit", "", "", "N|off", "2", Group::failure,
     "so many times the same failure at the same step end the job, though restarts are left; off: "
     "only --max-restarts counts. Workers killed from outside and lost hosts are never the same "
     "failure",
     &Options::same_failure_limit},
    {"spares", "", "", "N", "0", Group::failure,
     "keep so many more processes of an elastic program waiting to replace a failed one; others "
     "start there if a host is lost",
     &Options::spares},
    {"min-nproc", "", "min-np min-num-proc", "N", "as --nproc", Group::failure,
     "once no restart is left, an elastic program goes on with fewer workers, down to so many",
     &Options::min_nproc},
    {"max-nproc", "", "max-np max-num-proc", "N", "as --nproc", Group::failure,
     "an elastic program may grow to so many workers", &Options::max_nproc},
    {"join-timeout", "", "start-timeout elastic-timeout", "TIME", "10m", Group::failure,
     "how long hosts wait for each other; and a new worker of an elastic program that others wait "
     "for is replaced after that time",
     &Options::join_timeout},
    {"hang-timeout", "", "stall-check-shutdown-time-seconds", "TIME", "", Group::failure,
     "a worker for which the others wait in a collective of libdlring for that long, or that "
     "stands "
     "stopped for that long, has failed",
     &Options::hang_timeout},
    {"hang-warning", "", "stall-check-warning-time-seconds", "TIME", "1m", Group::failure,
     "a worker for which the others wait in a collective of libdlring for that long is told of; 0 "
     "means never. What has ended well is no longer told of until it takes twice as long",
     &Options::hang_warning},
    {"straggler", "", "", "off|warn|restart|evict", "warn", Group::failure,
     "what is done about a worker that is lastingly slower than the others, by the times at which "
     "it enters libdlring's collectives: named, started again, or replaced by a spare; a slow "
     "connection, or line of a host, is only named",
     &Options::straggler},
    {"straggler-ratio", "", "", "X", "1.1", Group::failure,
     "a worker is slow whose time between collectives is that many times the others'",
     &Options::straggler_ratio},
    {"straggler-window", "", "", "TIME", "10s", Group::failure,
     "three such windows in a row make a worker slow", &Options::straggler_window},
    {"chaos", "", "", "KIND=TIME,...", "", Group::failure,
     "hurt random workers, to see how the program takes it: kill=5s, stop=10s:500ms (for how "
     "long), slow=20s:5s, seed=7",
     &Options::chaos},
    {"error-file", "", "", "FILE", "", Group::failure,
     "write the report there as JSON, also of a job that has ended well", &Options::error_file},
    {"monitor-interval", "", "", "TIME", "", Group::failure, "dlaunch is told at once, never polls",
     &Options::monitor_interval, kHidden},

    // --- nodes and rendezvous
    {"hosts", "H", "host", "HOST[:N],...", "", Group::nodes,
     "start the job on these hosts, as many workers on each as it has slots (1 where none are "
     "given), those that are not this one by ssh: [user@]node[01-16]:8",
     &Options::hosts},
    {"hostfile", "", "machinefile f", "FILE", "", Group::nodes,
     "the same from a file of Open MPI, Horovod, DeepSpeed or MPICH", &Options::hostfile},
    {"ssh-command", "", "launch-agent launcher-exec rsh-agent ssh-cmd", "COMMAND", "ssh",
     Group::nodes,
     "how to reach the other hosts: words that ssh's options and the host are put behind; host "
     "keys "
     "are checked and nothing is asked for",
     &Options::ssh_command},
    {"ssh-port", "", "", "PORT", "", Group::nodes,
     "The port of the other hosts' sshd; the hostfile may name another one for a host",
     &Options::ssh_port},
    {"ssh-identity-file", "", "", "FILE", "", Group::nodes,
     "The private key for logging in to the other hosts", &Options::ssh_identity_file},
    {"include", "", "", "HOST[:GPU,...][@HOST...]", "", Group::nodes,
     "Of the hosts named, use only these and only these GPUs of theirs, as DeepSpeed means it; "
     "localhost is this machine",
     &Options::include},
    {"exclude", "", "", "HOST[:GPU,...][@HOST...]", "", Group::nodes,
     "Of the hosts named, do not use these, or these GPUs of theirs", &Options::exclude},
    {"ssh-logins", "", "", "N", "32", Group::nodes,
     "log in to at most so many hosts at the same time", &Options::ssh_logins},
    {"host-discovery-script", "", "", "COMMAND", "", Group::nodes,
     "ask that command every second which hosts there are, instead of --hosts: it prints "
     "HOST:SLOTS lines. New ones are taken in up to --nnodes' MAX, those no longer listed leave",
     &Options::host_discovery_script},
    {"health-check", "", "", "COMMAND", "", Group::nodes,
     "before a host joins a job that has begun, again or late, run that command of the shell "
     "there, after dlaunch's own quick test: unless it ends with 0 within a minute, the host stays "
     "out, with the last line it printed as the reason, and is tested again later",
     &Options::health_check},
    {"nnodes", "", "num-machines num-nodes", "N|MIN:MAX", "1", Group::nodes,
     "how many hosts, each of which runs this same command, unless --hosts starts them; with "
     "MIN:MAX the job begins with MIN of them, goes on with as few, and takes in others up to MAX",
     &Options::nnodes},
    {"node-rank", "", "machine-rank", "N", "", Group::nodes,
     "which of the hosts this is; 0 leads. Without it the host that --rdzv names leads, and the "
     "others are numbered as they come",
     &Options::node_rank},
    {"host-timeout", "", "", "TIME", "3s", Group::nodes,
     "a host of which nothing is heard for that long is lost; 2s at least, and alike on all hosts. "
     "Ranks of a program that uses libdlring wait for 5s or as long",
     &Options::host_timeout},
    {"standalone", "", "", "", "", Group::nodes, "one machine, nobody else, as is the default",
     &Options::standalone},
    {"rdzv", "", "rdzv-endpoint", "URL", "a free port", Group::nodes,
     "where the hosts meet: tcp://HOST:PORT, where the leading dlaunch listens on one of its own "
     "addresses; or file:///FOLDER, which they share, or etcd://HOST:PORT,HOST:PORT/PREFIX "
     "(etcds:// by TLS), which tell them who leads",
     &Options::rdzv, kWorkerVar},
    {"rdzv-backend", "", "", "c10d|static", "", Group::nodes, "both mean dlaunch's own store",
     &Options::rdzv_backend, kHidden},
    {"master-addr", "", "main-process-ip", "HOST", "127.0.0.1", Group::nodes,
     "MASTER_ADDR of the workers, an address of this machine; on several hosts without --rdzv, "
     "where they meet",
     &Options::master_addr},
    {"master-port", "", "main-process-port", "PORT", "a free port", Group::nodes,
     "MASTER_PORT of the workers; reserved for them while the job runs", &Options::master_port},
    {"job-id", "", "rdzv-id", "NAME", "random", Group::nodes,
     "the name of this job; peers of another job are refused", &Options::job_id, kWorkerVar},
    {"secret-file", "", "", "FILE", "a new one", Group::nodes,
     "the secret that this job's processes prove to each other (mode 0600, 16 bytes or more)",
     &Options::secret_file, kWorkerVar},
    {"journal", "", "", "FILE", "in $TMPDIR", Group::nodes,
     "where the leading dlaunch of hosts that meet by tcp:// writes each round down, so that it "
     "can be killed and started again while the others' workers go on; under Slurm, where a job "
     "that is put into the queue again finds what is left of --max-restarts",
     &Options::journal},
    {"emit", "", "", "kubernetes|jobset", "", Group::nodes,
     "write the job to stdout as YAML for Kubernetes, one pod for each of --nnodes, instead of "
     "running it",
     &Options::emit},
    {"image", "", "", "IMAGE", "", Group::nodes,
     "with --emit: the container's image, with dlaunch and the program in it", &Options::image},
    {"gpus", "", "", "N", "none", Group::nodes, "with --emit: GPUs of each pod", &Options::gpus},

    // --- general
    {"transport", "", "", "auto|shm|tcp", "auto", Group::general,
     "how libdlring moves data between the workers", &Options::transport},
    {"interface", "", "network-interface network-interfaces nics iface", "NAME|ADDRESS|NET,...", "",
     Group::general,
     "what the workers' libdlring listens on: eth0, 10.0.0.7, 10.0.0.0/8; the first that fits",
     &Options::interface},
    {"port-range", "", "", "FIRST-LAST", "", Group::general,
     "the ports that it may listen on; without it the kernel chooses", &Options::port_range},
    {"debug", "", "", "explain", "", Group::general,
     "explain: rank 0 prints how libdlring does each new kind and size of call", &Options::debug},
    {"tls", "", "", "", "", Group::general,
     "encrypts the connections of dlaunch and libdlring (TLS 1.3, by the job's secret)",
     &Options::tls},
    {"config", "", "config-file", "FILE", "", Group::general,
     "read options from a TOML file: nproc = 4. Flags and the environment come first",
     &Options::config, kNoFile},
    {"dry-run", "", "", "", "", Group::general, "print what would be done, and do nothing",
     &Options::dry_run, kNoFile},
    {"quiet", "q", "", "", "", Group::general, "no messages of dlaunch's own but errors",
     &Options::quiet},
    {"verbose", "v", "", "", "", Group::general, "tell what dlaunch does and decides",
     &Options::verbose},
    {"check-build", "", "cb", "", "", Group::general,
     "Print what this dlaunch was built with and what it finds here, and do nothing else",
     &Options::check_build, kNoEnv | kNoFile},
    {"allow-run-as-root", "", "", "", "", Group::general, "root may run dlaunch anyway",
     &Options::allow_run_as_root, kHidden},
    {"oversubscribe", "", "", "", "", Group::general, "more workers than CPUs are no error anyway",
     &Options::oversubscribe, kHidden},
    {"cflags", "", "", "", "", Group::general,
     "print what compilers need to find the headers, as pkg-config does. 'dlaunch --cflags --libs "
     "dlelastic' is for libdlelastic",
     &Options::cflags, kNoEnv | kNoFile},
    {"libs", "", "", "", "", Group::general, "print what the linker needs to find the libraries",
     &Options::libs, kNoEnv | kNoFile},
    {"help", "h", "", "", "", Group::general, "print this", &Options::help, kNoEnv | kNoFile},
    {"version", "V", "", "", "", Group::general, "print the version", &Options::version,
     kNoEnv | kNoFile},
};

bool equal_names(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x == '_' ? '-' : x) == (y == '_' ? '-' : y); });
}

bool is_called(const OptionRow& row, std::string_view name) {
  if (equal_names(row.name, name) || row.letter == name) return !name.empty();
  for (const auto alias : split_words(row.aliases, ' ')) {
    if (equal_names(alias, name)) return true;
  }
  return false;
}

}  // namespace

std::string_view title(Group group) {
  switch (group) {
    case Group::workers:
      return "Workers";
    case Group::placement:
      return "Placement";
    case Group::output:
      return "Output";
    case Group::failure:
      return "Failure and time";
    case Group::nodes:
      return "Nodes and rendezvous";
    case Group::general:
      return "General";
  }
  return "";
}

std::span<const OptionRow> option_table() { return kTable; }

const OptionRow* find_option(std::string_view name) {
  for (const OptionRow& row : kTable) {
    if (is_called(row, name)) return &row;
  }
  return nullptr;
}

std::string env_name(const OptionRow& row) { return env_name(row.name); }

std::string env_name(std::string_view option, std::string_view prefix) {
  std::string name(prefix);
  for (const char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::vector<std::string_view> choices(const OptionRow& row) {
  std::vector<std::string_view> words;
  for (const auto word : split_words(row.value, '|')) {
    const bool literal = std::none_of(word.begin(), word.end(),
                                      [](unsigned char c) { return std::isupper(c) != 0; });
    if (literal) words.push_back(word);
  }
  return words;
}

}  // namespace dlaunch
