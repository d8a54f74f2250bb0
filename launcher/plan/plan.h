// Plan: everything `dlaunch` will do, as one plain value. The command line makes it (cli/), checks
// it completely before anything starts, --dry-run prints it, the agent executes it. No option, no
// environment variable is read below this point.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/contract.h"
#include "base/rank_set.h"
#include "base/site_list.h"
#include "base/words.h"
#include "elastic/chaos.h"
#include "elastic/job_core.h"
#include "elastic/straggler.h"
#include "launcher/plan/host_racks.h"
#include "rendezvous/etcd_client.h"

namespace dlaunch {

// Of a job; as min_nproc: all workers at the start.
inline constexpr int kMaxWorkers = 16384;

enum class OutputMode {
  prefix,  // "[3] line" on our stdout and stderr
  merged,  // as prefix, equal lines of several ranks become one "[0-7] line"
  raw,     // workers inherit our stdout and stderr
  files,   // only into --log-dir
  none,    // discarded (the report still quotes stderr)
};
inline constexpr WordTable<OutputMode, 5> kOutputWords = {{{"prefix", OutputMode::prefix},
                                                           {"merged", OutputMode::merged},
                                                           {"raw", OutputMode::raw},
                                                           {"files", OutputMode::files},
                                                           {"none", OutputMode::none}}};
// What is shown of progress bars, which workers draw with carriage returns.
enum class BarMode {
  first,   // of the first rank that has one now; of others the end
  all,     // of all ranks
  at_end,  // only how each ends
  lines,   // of all ranks, as lines, once a second
};
inline constexpr WordTable<BarMode, 4> kBarWords = {{{"first", BarMode::first},
                                                     {"all", BarMode::all},
                                                     {"final", BarMode::at_end},
                                                     {"lines", BarMode::lines}}};
// How dlaunch shows how far a job is.
enum class ProgressMode {
  automatic,  // one row at the bottom of a terminal; elsewhere as plain
  plain,      // lines now and then
  none,
};
inline constexpr WordTable<ProgressMode, 3> kProgressWords = {{{"auto", ProgressMode::automatic},
                                                               {"plain", ProgressMode::plain},
                                                               {"none", ProgressMode::none}}};
// Of a worker, or of ours.
enum class OutputStream : std::uint8_t { out, err };
inline constexpr OutputStream kOutputStreams[] = {OutputStream::out, OutputStream::err};
enum class StreamSet { none, out, err, both };  // torchrun's 0, 1, 2, 3

struct OutputPlan {
  OutputMode mode = OutputMode::prefix;
  std::string log_dir;                // "": no files. DIR/round/rank/{stdout,stderr}
  StreamSet tee = StreamSet::both;    // with log_dir: streams that also go to the terminal
  std::map<int, StreamSet> tee_of;    // the same for some local ranks
  std::string prefix;                 // before each line, with macros; "": [RANK]
  std::optional<RankSet> only_ranks;  // whose lines are shown; files and report get all
  BarMode bars = BarMode::first;
  ProgressMode progress = ProgressMode::automatic;
  bool cursor = false;       // the terminal, if any, lets bars be drawn in place
  bool timestamps = false;   // time of emission, ms, local time
  bool host_prefix = false;  // "[host:3]" instead of "[3]"
  bool color = false;        // decided by the command line (terminal, NO_COLOR)
  bool tmux = false;         // each rank has a pane of tmux
  // Those panes, once they are there: the terminal of each, by rank, and where the user sees them.
  std::vector<std::string> panes;
  std::string panes_at;
  bool passed_on = false;  // to another dlaunch, which may show it on a terminal
};

// The ranks that an option names.
struct RankChoice {
  bool all = false;
  RankSet ranks;
  bool has(int rank) const { return rank >= 0 && (all || ranks.contains(rank)); }
  bool none() const { return !all && ranks.empty(); }
};
std::string in_words(const RankChoice& choice);

// Workers that a person debugs. No limit of time for hangs, stragglers and new workers holds then.
struct DebugPlan {
  RankChoice stopped;        // before their program begins
  RankChoice under;          // these run under a debugger
  bool on_failure = false;   // `under` is all, and the debugger opens when a worker fails
  bool on_terminal = false;  // the debugger of `under`, one rank, has the terminal from the start
  std::vector<std::vector<std::string>> commands;  // by program: what a rank of `under` runs
  bool active() const { return !stopped.none() || !under.none(); }
  bool uses_terminal() const { return on_terminal || on_failure; }
  bool has_terminal(int rank) const { return on_terminal && under.has(rank); }
};

enum class StdinPlan { none, one_rank, all };

enum class BindPolicy { none, core, l3, numa, socket, gpu };
inline constexpr WordTable<BindPolicy, 6> kBindWords = {{{"none", BindPolicy::none},
                                                         {"core", BindPolicy::core},
                                                         {"l3", BindPolicy::l3},
                                                         {"numa", BindPolicy::numa},
                                                         {"socket", BindPolicy::socket},
                                                         {"gpu", BindPolicy::gpu}}};

// The program that starts the dlaunch of another host: ssh, or the scheduler's own launcher.
enum class Starter : std::uint8_t { ssh, srun, pbsdsh, blaunch, qrsh, flux };
const char* name_of(Starter starter);

// A host that dlaunch starts the job on; the leader's own needs no Starter.
struct HostPlan {
  std::string name;         // as the user wrote it
  std::string user;         // "": ssh's own choice
  std::optional<int> port;  // the same
  int nproc = 0;            // workers there; 0: the host decides (--nproc auto)
  bool leads = false;
  int cpus = 0;   // of Slurm's allocation
  int place = 0;  // in PBS's list of processes, or Flux's of hosts
};

// Whether hosts that were started by ssh log in to further hosts: automatic until one cannot.
enum class SshTree : std::uint8_t { automatic, on, off };
inline constexpr WordTable<SshTree, 3> kSshTreeWords = {
    {{"auto", SshTree::automatic}, {"on", SshTree::on}, {"off", SshTree::off}}};

// --topology: each host reads its rack from Slurm's environment.
inline constexpr std::string_view kSlurmTopology = "slurm";

// The hosts of the job.
struct NodesPlan {
  enum class Lead { yes, if_free, no };  // if_free: follow if a leader listens there already
  int min = 1, max = 1;
  int rank = -1;  // of this node; -1: any
  Lead lead = Lead::yes;
  std::string endpoint;         // host:port of the leader; "": on one host, or elected
  bool leader_returns = false;  // a lost leader is restarted, perhaps at another address
  std::string journal;          // of a leader that may be restarted; "": none
  std::string slurm_job;        // the journal's job; the journal is valid only in
  int requeued = 0;             // the same job, requeued so often
  enum class Step { none, slurm, flux };
  Step step = Step::none;  // a scheduler started one dlaunch on each node

  // Where the leader is elected: a shared folder or etcd; neither: there is no election.
  std::string folder;
  std::optional<EtcdAccess> etcd;
  bool leads_only = false;  // has no workers: another process has those of its host
  int total = 0;            // workers at the start on all hosts; 0: not known here

  // If one dlaunch starts all others; node by node. Empty: started by hand, or only one host.
  std::vector<HostPlan> hosts;
  // The command that reaches them. In a dlaunch that was started by ssh: the command with which it
  // may log in to further hosts; empty: it may not.
  std::vector<std::string> ssh;
  Starter starter = Starter::ssh;
  int logins = 32;  // at the same time, by each host that logs in
  SshTree tree = SshTree::off;
  std::string discovery;  // a command that lists the present hosts; "": they never change
  std::string order;      // for the dlaunch there (cli/ssh_order.h)
  Duration host_timeout = std::chrono::seconds(3);  // a host silent for this long is lost

  // Racks of hosts, for the order of ranks (elastic/rack_order.h).
  std::string rack;      // this host's, from --rack or Slurm; "": it does not know
  std::string topology;  // kSlurmTopology, or at a host that may lead the file; "": none
  HostRacks racks;       // from that file

  int lifeline = -1;  // of a started dlaunch: the descriptor that closes with its starter
  int login = 0;      // and the number of the login that started it

  bool by_scheduler() const { return starter != Starter::ssh; }
  // A signal to the job may come from each of its hosts, because a scheduler sends it to all.
  bool signalled_by_all() const { return in_step() || by_scheduler(); }
  bool in_step() const { return step != Step::none; }
  // Slurm's steps signal the workers themselves, except for signals that end the job.
  bool steps_signal_workers() const { return starter == Starter::srun || step == Step::slurm; }
  bool elects() const { return !folder.empty() || etcd; }
  bool outlives_leader() const { return elects() || (!journal.empty() && slurm_job.empty()); }
  std::string where_elected() const;  // in words
  bool several() const { return max > 1 || lead == Lead::no || !hosts.empty(); }
  // At the leader, of a node: said is what its host knows itself. "": unknown.
  std::string rack_of(int number, const std::string& host, const std::string& said) const;
  // The number of the leader's own node; -1: it is not part of the job.
  int own_number() const { return hosts.empty() && !leads_only ? std::max(rank, 0) : rank; }
  int nproc_of(std::size_t node, int if_not_said) const {
    return node < hosts.size() ? std::max(hosts[node].nproc, 1) : if_not_said;
  }
};

// The sites with which this job trains; without a list: none.
struct SitesPlan {
  SiteList list;
  std::string own;                             // the name of this job's
  Duration grace = std::chrono::seconds(10);   // for a late site
  Duration timeout = std::chrono::seconds(5);  // a site silent for this long is cut off
  Duration wait = std::chrono::minutes(30);    // for a quorum
  Duration linger = std::chrono::minutes(1);   // after the end, for sites that were lost
  std::string journal;                         // a folder; "": none
};

using EnvVariables = std::vector<std::pair<std::string, std::string>>;

// One of several programs of a job.
struct JobProgram {
  std::vector<std::string> argv;  // as Plan::argv
  EnvVariables env;               // applied after the plan's
  std::string chdir;              // "": the plan's
  RankSet ranks;                  // the ranks that run it
  std::size_t segment = 0;        // its place on the command line, or in the file
};

// Ranks `first` to `first + count - 1`: --roles.
struct JobRole {
  std::string name;
  int first = 0, count = 1;
};
// The rank's role; null: it has none.
const JobRole* role_of(const std::vector<JobRole>& roles, int rank);
// Ranks that never finish by themselves, because others use them: parameter servers (ps), and, in
// jobs with a chief and parameter servers, the workers, which get their work from the chief.
std::set<int> serving_ranks(const std::vector<JobRole>& roles);

// The words of --restart-scope and --straggler.
inline constexpr WordTable<RestartScope, 4> kRestartScopeWords = {
    {{"auto", RestartScope::automatic},
     {"worker", RestartScope::worker},
     {"node", RestartScope::node},
     {"job", RestartScope::job}}};
inline constexpr WordTable<StragglerMode, 4> kStragglerWords = {
    {{"off", StragglerMode::off},
     {"warn", StragglerMode::warn},
     {"restart", StragglerMode::restart},
     {"evict", StragglerMode::evict}}};

// The framework whose variables workers get beside the common ones.
enum class Framework {
  automatic,   // TF_CONFIG once a Python program imports TensorFlow
  tensorflow,  // TF_CONFIG from the start
  tensorflow_if_possible,
  none,
};
inline constexpr WordTable<Framework, 3> kFrameworkWords = {{{"auto", Framework::automatic},
                                                             {"tensorflow", Framework::tensorflow},
                                                             {"none", Framework::none}}};

// What NCCL's profiler plug-in records in the workers: the calls, or also the begin and end of
// their kernels.
enum class NcclRecord { calls, kernels, off };
inline constexpr WordTable<NcclRecord, 3> kNcclRecordWords = {
    {{"calls", NcclRecord::calls}, {"kernels", NcclRecord::kernels}, {"off", NcclRecord::off}}};

// Jobs with more ranks get no list of addresses: an environment variable has at most 128 KiB.
inline constexpr int kMostPeers = 1024;

struct Plan {
  std::vector<std::string> argv;  // program and arguments, macros not yet expanded
  // Replaces argv if ranks run different programs, by number (MPI_APPNUM); `argv` is the first's.
  std::vector<JobProgram> programs;
  int nproc = 1;  // workers on this node
  NodesPlan nodes;
  SitesPlan sites;
  std::string job_id;            // never empty
  std::string host;              // this node's name, for prefixes and the report
  EnvVariables env;              // --env, in order, applied last
  std::string chdir;             // "": stay
  std::string role = "default";  // ROLE_NAME of the workers
  std::vector<JobRole> roles;    // the role of each rank, in order; empty: `role`
  Framework framework = Framework::automatic;
  bool in_place_of_horovod = false;  // Python's `import horovod` gives dlaunch.horovod
  std::string health_check;  // a command that a host must pass to join a running job; "": none
  BindPolicy bind = BindPolicy::none;
  bool report_bindings = false;
  std::optional<int> omp_threads;         // OMP_NUM_THREADS; nullopt: leave it alone
  std::vector<std::vector<int>> cpusets;  // per local rank; empty: not bound
  std::vector<std::string> gpus;          // CUDA_VISIBLE_DEVICES by local rank; empty: as inherited
  bool virtual_local_rank = false;        // LOCAL_RANK is 0: of the only GPU that a worker sees
  std::string hcas;                       // NCCL_IB_HCA, for all ranks here; "": open
  int gpus_asked = 0;                     // number of GPUs here when an option depended on it
  OutputPlan output;
  StdinPlan stdin_to = StdinPlan::one_rank;
  int stdin_rank = 0;
  Duration grace = std::chrono::seconds(10);  // between SIGTERM and SIGKILL
  Duration timeout = Duration::zero();        // of the whole job; 0: none
  std::optional<Duration> end_signal_after;   // after the start; none: no limit is known
  int end_signal = 0;
  RestartLimit max_restarts;       // of all workers together, as in torchrun
  int same_failures = 2;           // so many end the job; 0: no number does
  std::set<int> final_exit_codes;  // workers with these are not started again
  int min_nproc = 1;               // with fewer the job does not go on
  int max_nproc = 1;               // it may grow to this size
  int spares = 0;                  // idle processes that can replace a worker
  RestartScope restart_scope = RestartScope::automatic;
  Duration hang_timeout = Duration::max();           // max: hung workers are not replaced
  Duration hang_warning = std::chrono::seconds(60);  // max: only for workers to be replaced
  NcclRecord nccl_record = NcclRecord::calls;
  std::optional<ChaosConfig> chaos;
  std::string trace;     // the file of --trace; "": none
  bool goodput = false;  // say where the time of a job went even if it has not failed
  StragglerMode straggler = StragglerMode::warn;
  double straggler_ratio = 1.1;  // of a slow worker's time to the others'
  Duration straggler_window = std::chrono::seconds(10);
  Duration join_timeout = std::chrono::seconds(600);  // for a new member of a round
  std::string error_file;                             // the report as JSON; "": none
  std::string events_file;                            // what happens, as JSON lines; "": none
  std::string run_dir;                                // has the files of `dlaunch report`; "": none
  std::string metrics;  // HOST:PORT or unix:PATH, where metrics are served; "": nowhere
  std::string store_listen = "127.0.0.1:0";  // where the embedded store listens
  std::string master_addr = "127.0.0.1";     // the workers' MASTER_ADDR; an address of this host
  int master_port = 0;                       // 0: reserve a free one
  std::string secret_file;                   // "": make a secret for this job
  std::string key_file;  // the user's own, from which to make the secret; "": at random
  std::string secret;    // its bytes if they were passed to us; never printed
  Transport transport = Transport::automatic;  // exported as DLAUNCH_TRANSPORT
  VerifyMode verify = VerifyMode::off;         // exported as DLAUNCH_VERIFY; off: not
  DebugOutput debug = DebugOutput::none;       // exported as DLAUNCH_DEBUG; none: not
  std::string interface;                       // exported as DLAUNCH_INTERFACE; "": not
  std::string port_range;                      // exported as DLAUNCH_PORT_RANGE; "": not
  bool tls = false;                            // connections are encrypted; exported as DLAUNCH_TLS
  DebugPlan debugging;
  bool quiet = false;
  bool says_all = false;  // the program reports its errors itself: no report if it exits with 1

  // The number of the program that a rank runs; 0 if all run the same.
  int program_of(int rank) const;
  // The rank's command and its folder.
  const std::vector<std::string>& argv_of(int rank) const;
  const std::string& chdir_of(int rank) const;
  // The same command, under a debugger if the rank has one.
  const std::vector<std::string>& command_of(int rank) const;

  // After the loss of a worker or a host the job goes on: with new workers, or with fewer hosts.
  bool survives_losses() const { return max_restarts.restarts > 0 || nodes.min < nodes.max; }
};

// The bytes of each file in run_dir; the last event comes on top.
inline constexpr std::size_t kMostOfRunFile = 15u << 20;

// The receivers of our stdin, in the words of --stdin.
std::string stdin_of(const Plan& plan);

// The command, with " : " between those of several programs.
std::string command_line(const Plan& plan);

// The settings that must be equal on all hosts of a job, in words.
std::string what_must_agree(const Plan& plan);

// The plan in words, as pairs of a name and a value. A name may come several times.
using PlanFacts = std::vector<std::pair<std::string, std::string>>;
PlanFacts facts_of(const Plan& plan);

// The plan as --dry-run prints it: a "key: value" line each.
std::string describe(const Plan& plan);

}  // namespace dlaunch
