// The rows of the option table: the workers' output and input.
#include "cli/option_rows.h"
#include "launcher/plan/plan.h"

namespace dlaunch {
namespace {

constexpr OptionRow kOutputRows[] = {
    {"output", "", "", kChoices<kOutputWords>, "prefix", Group::output,
     "How dlaunch shows what workers print: prefix puts the rank before each line, merged shows "
     "equal lines of several ranks as one, raw shows everything unchanged, files writes it only to "
     "--log-dir, and none drops it",
     &Options::output},
    {"log-dir", "", "output-filename", "DIR", "", Group::output,
     "Also write what workers print to DIR/ROUND/RANK/stdout and stderr", &Options::log_dir,
     kCommon},
    {"redirects", "r", "", "0|1|2|3|R:N,...", "0", Group::output,
     "With --log-dir: which streams go only to files: none (0), stdout (1), stderr (2) or both "
     "(3). 0:1,1:2 chooses by local rank",
     &Options::redirects},
    {"tee", "t", "", "0|1|2|3|R:N,...", "0", Group::output,
     "With --redirects: which streams dlaunch shows on the terminal all the same, in the same "
     "notation",
     &Options::tee},
    {"only-rank", "", "only-ranks local-ranks-filter", "R,...", "", Group::output,
     "Show the lines of these ranks only, for example 0,2-5. Log files and the report have the "
     "lines of all ranks",
     &Options::only_rank},
    {"progress-bars", "", "", kChoices<kBarWords>, "first", Group::output,
     "Which progress bars are shown while they run: first, that of the first rank that has one; "
     "all, those of all ranks; or final, none. A terminal shows them in place below all lines, a "
     "pipe or file as a line every 30 s. Each bar's last state is always shown. lines shows every "
     "bar as lines, at most one a second",
     &Options::progress_bars},
    {"progress", "", "", kChoices<kProgressWords>, "auto", Group::output,
     "How dlaunch shows the job's progress, from its start to the steps that the program reports "
     "with dl_report_progress(): auto, in one row at the bottom of a terminal, and elsewhere as "
     "plain; plain, with a line every 30 s at most, and none for a start within that time; or none",
     &Options::progress},
    {"timestamps", "", "timestamp timestamp-output prefix-timestamp prefix-output-with-timestamp",
     "", "", Group::output, "Put the local time, to the millisecond, before each line",
     &Options::timestamps},
    {"tmux", "", "", "", "", Group::output,
     "Give each rank a pane of tmux, for its output and its input: in new windows of the tmux that "
     "you are in, or in a new session. Only on one host, for at most 64 ranks",
     &Options::tmux},
    {"goodput", "", "", "", "", Group::output,
     "Print at the job's end where its time went, and which ranks cost how much of it. dlaunchctl "
     "goodput prints the same for a running job. Without this option the report of a job that does "
     "not succeed has it, if the job took a minute or more",
     &Options::goodput},
    {"trace", "", "", "FILE", "", Group::output,
     "Write a timeline of all ranks to this file at the job's end, in Chrome's trace event format: "
     "ui.perfetto.dev shows it. It has the last operations of libdlring on each rank with their "
     "bytes and algorithm, whom each rank waited for and why, rounds, failures and commits",
     &Options::trace},
    {"label", "l", "tag-output prepend-rank", "", "", Group::output,
     "Put the rank before each line, which is the default", &Options::label, kHidden},
    {"log-line-prefix-template", "", "", "TEMPLATE", "", Group::output,
     "Put this before each line instead of [RANK]. It may have the macros ${rank}, "
     "${local_rank}, ${role_name} and ${host}",
     &Options::prefix_template},
    {"events", "", "", "FILE", "", Group::output,
     "Append what happens in the job to FILE, one JSON object a line: starts, rounds, failures, "
     "restarts, commits, stragglers, hangs and more",
     &Options::events},
    {"run-dir", "", "", "DIR", "", Group::output,
     "Collect in DIR what 'dlaunch report DIR' needs to make a page of this run: its options, its "
     "events, who waited for whom, and the report at its end",
     &Options::run_dir},
    {"metrics", "", "", "[HOST:]PORT|unix:PATH", "", Group::output,
     "Serve the job's metrics for Prometheus at http://HOST:PORT/metrics. HOST is 127.0.0.1 if not "
     "given. With port 0 the kernel chooses a port, and dlaunch prints it",
     &Options::metrics},
    {"stdin", "i", "input", "none|all|RANK", "0", Group::output,
     "Which workers read what dlaunch gets on stdin", &Options::stdin_to},
};

}  // namespace

std::span<const OptionRow> output_rows() { return kOutputRows; }

}  // namespace dlaunch
