// The rows of the option table: what dlaunch does about failures, and times.
#include "cli/option_rows.h"
#include "launcher/plan/plan.h"

namespace dlaunch {
namespace {

constexpr OptionRow kFailureRows[] = {
    {"grace", "", "grace-period shutdown-timeout", "TIME", "10s", Group::failure,
     "How long workers may take to end after SIGTERM before dlaunch sends SIGKILL: 30, 500ms, "
     "2m",
     &Options::grace},
    {"timeout", "", "", "TIME", "", Group::failure,
     "End the job after this time. The wait for hosts counts; the time for which Ctrl-Z stops the "
     "job does not. 0 means never",
     &Options::timeout, kCommon},
    {"end-signal", "", "", "none|SIGNAL@TIME", "TERM, 5s more than --grace", Group::failure,
     "Send this signal to the workers this long before Slurm's time limit: USR1@5m",
     &Options::end_signal},
    {"max-restarts", "", "reset-limit", "N[/TIME]", "0", Group::failure,
     "How many failures the job survives: a number, or a number within any period (10/1h). dlaunch "
     "replaces only the failed worker of an elastic program, and restarts all workers of any other "
     "program",
     &Options::max_restarts, kCommon},
    {"restart-scope", "", "", kChoices<kRestartScopeWords>, "auto", Group::failure,
     "Which workers dlaunch restarts besides the failed one: those that cannot continue without it "
     "(auto), no others (worker), all on its host (node), or all (job). It also restarts workers "
     "that have ended well; with worker it does so only in an elastic program",
     &Options::restart_scope},
    {"no-restart-codes", "", "", "CODE,...", "", Group::failure,
     "Do not restart a worker that exits with one of these codes", &Options::no_restart_codes},
    {"same-failure-limit", "", "", "N|off", "2", Group::failure,
     "The job ends when the same failure has happened this many times at the same step, even if "
     "restarts are left. With off, only --max-restarts counts. Workers killed from outside and "
     "lost hosts are never the same failure",
     &Options::same_failure_limit},
    {"spares", "", "", "N", "0", Group::failure,
     "Keep this many more processes of an elastic program waiting to replace a failed worker. When "
     "a host is lost, others start there",
     &Options::spares},
    {"min-nproc", "", "min-np min-num-proc", "N", "as --nproc", Group::failure,
     "When no restart is left, an elastic program continues with fewer workers, down to this "
     "number",
     &Options::min_nproc},
    {"max-nproc", "", "max-np max-num-proc", "N", "as --nproc", Group::failure,
     "An elastic program may grow to this many workers", &Options::max_nproc},
    {"join-timeout", "", "start-timeout elastic-timeout", "TIME", "10m", Group::failure,
     "How long hosts wait for each other. dlaunch also replaces a new worker of an elastic program "
     "if the others have waited for it this long",
     &Options::join_timeout},
    {"hang-timeout", "", "stall-check-shutdown-time-seconds", "TIME", "", Group::failure,
     "A worker has failed if the others wait this long for it in a collective of libdlring, if it "
     "sends no heartbeat for this long after it has sent one, or if it is stopped for this long. "
     "Programs with neither sign hang if no worker writes output or uses CPU time for this long",
     &Options::hang_timeout},
    {"hang-warning", "", "stall-check-warning-time-seconds", "TIME", "1m", Group::failure,
     "dlaunch warns about a worker if the others wait this long for it in a collective of "
     "libdlring, or if it alone sends no more heartbeats for this long. 0 means never. After a "
     "wait that ended well, dlaunch warns again only if a wait "
     "takes twice as long",
     &Options::hang_warning},
    {"nccl-record", "", "", kChoices<kNcclRecordWords>, "calls", Group::failure,
     "What dlaunch's plug-in for NCCL records in each worker: the calls (calls), also when the GPU "
     "begins and ends them (kernels), or nothing (off). The report of a hang then names the rank "
     "that lacks a collective. kernels costs each operation some time. dlaunch does not replace "
     "your own NCCL_PROFILER_PLUGIN",
     &Options::nccl_record},
    {"straggler", "", "", kChoices<kStragglerWords>, "warn", Group::failure,
     "What dlaunch does about a worker that stays slower than the others: nothing (off), a "
     "warning, a restart, or a spare in its place (evict), on another host if there is one; "
     "without a spare the job goes on with fewer workers, if it may. dlaunch measures when each "
     "worker enters libdlring's collectives. About a slow connection or a host's slow line it only "
     "warns",
     &Options::straggler},
    {"straggler-ratio", "", "", "X", "1.1", Group::failure,
     "A worker is slow if its time between collectives is this many times that of the others",
     &Options::straggler_ratio},
    {"straggler-window", "", "", "TIME", "10s", Group::failure,
     "A worker that is slow in three such periods in a row is a straggler",
     &Options::straggler_window},
    {"chaos", "", "", "KIND=TIME,...", "", Group::failure,
     "Kill, stop or slow random workers to test the program: kill=5s, stop=10s:500ms (stops for "
     "500 ms), slow=20s:5s, seed=7",
     &Options::chaos},
    {"debugger", "", "", "RANK|all|on-failure", "", Group::failure,
     "Run a rank under a debugger that has the terminal: pdb for Python, else gdb or lldb. With "
     "on-failure the debugger opens on the rank that fails, while the others wait. all needs a "
     "debugger that uses no terminal, such as debugpy",
     &Options::debugger},
    {"debugger-command", "", "", "gdb|lldb|pdb|debugpy|COMMAND", "", Group::failure,
     "The debugger: a name, words to put before the program (cuda-gdb --args), or a module of "
     "Python (-m ipdb). debugpy listens on port 5678 + rank and waits for an editor",
     &Options::debugger_command},
    {"stop-at-start", "", "", "R,...|all", "", Group::failure,
     "Stop these ranks before their program begins, for a debugger to attach. dlaunch prints their "
     "pids; 'kill -CONT PID' lets one continue. Limits for hangs, stragglers and new workers are "
     "off",
     &Options::stop_at_start},
    {"error-file", "", "", "FILE", "", Group::failure,
     "Write the report to this file as JSON, also if the job ends well", &Options::error_file},
    {"monitor-interval", "", "", "TIME", "", Group::failure,
     "This changes nothing: the kernel tells dlaunch at once when a worker ends",
     &Options::monitor_interval, kHidden},
};

}  // namespace

std::span<const OptionRow> failure_rows() { return kFailureRows; }

}  // namespace dlaunch
