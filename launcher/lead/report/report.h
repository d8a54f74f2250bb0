// The report: the last thing the user reads when a job fails, and the same as JSON (--error-file).
// Pure: the agent collects the facts, these functions judge and render them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/goodput_ledger.h"
#include "elastic/job_core.h"
#include "elastic/restart_policy.h"
#include "launcher/wire/stack_groups.h"
#include "launcher/wire/worker_end.h"

namespace dlaunch {

// Its last traceback is about its failure at that time, not about an exception that it had caught
// long before.
bool tells_of_failure(const WorkerEnd& end, TimePoint failed);

FailureKind failure_kind(const WorkerEnd& end);

// A hash of a failure, to recognise the same failure again: how the worker ended and its innermost
// words, with numbers or without, because numbers differ from rank to rank. 0: too little is known.
std::uint64_t signature_of(const WorkerEnd& end, bool with_numbers = false);

// Its last words are about other ranks: a broken connection, or a wait that it gave up.
bool speaks_of_others(const WorkerEnd& end);
// It failed by itself, and perhaps only because it waited too long: its last words are about other
// ranks, or about a time-out of any kind.
bool may_follow_from_wait(const WorkerEnd& end);

struct JobFacts {
  JobEnding end = JobEnding::succeeded;
  std::string job_id;
  std::string host;
  std::string program;                // argv[0]
  std::vector<std::string> programs;  // by rank, if they run different ones
  int nproc = 1;
  int round = 1;
  int restarts_used = 0;
  RestartLimit max_restarts;
  std::string why_no_restart;  // "": no restart was asked for
  std::string ended_by;        // the option whose limit ended the job: "--max-restarts"; "": none
  std::string given_up;        // why the members gave up their round, in their words
  bool corrupt = false;        // they did because their results differed
  TimePoint started{};
  TimePoint ended{};
  int signal_received = 0;                        // interrupted: which
  std::optional<std::vector<std::string>> waits;  // which ranks waited for which when its end began
  Duration grace{};
  // spawn_failed, setup_failed:
  int failed_rank = -1;
  Stage failed_stage = Stage::none;
  int failed_errno = 0;
  std::string failed_what;         // "exec 'trian.py': No such file or directory"
  std::vector<WorkerEnd> workers;  // those that have ended, in the order of `ended`
  // In this round: the first host that was lost with its workers, and how many workers had ended
  // before.
  std::string lost_host;
  std::vector<int> lost_ranks;
  std::size_t ended_before_loss = 0;
  // Of the ranks that still ran when the first one gave up waiting, before any signal of ours.
  RankStacks stacks;
  RankSet late_in_nccl;            // the ranks for which others waited then, by NCCL's counts
  std::string nccl_says;           // a sentence about them
  std::vector<int> still_running;  // ranks that could not be reaped (uninterruptible)
  std::optional<Goodput> goodput;  // none: the job has not begun
  bool shows_goodput = false;      // --goodput: in the text of each report
  bool tells_cost = false;         // without --goodput: a rank that cost much
};

// The rank's program in a job of several programs; else "".
std::string program_of(const JobFacts& facts, int rank);

struct Verdict {
  int exit_code = 0;                // of dlaunch
  std::optional<std::size_t> root;  // index into JobFacts::workers
  bool by_traceback = false;  // the root's traceback is about this failure, not an earlier one
  std::vector<std::size_t> consequences;  // failed because the root did
  std::vector<std::size_t> stopped;       // ended by our own signals
  std::vector<std::size_t> own_failures;  // failed by themselves, later than the root
  std::vector<std::size_t> maybe_first;   // of these: on other hosts, and perhaps the first to fail
  // The root's last words are about a broken connection, and no failure explains it. Its peer may
  // have been:
  std::vector<std::size_t> left_before;  // a worker that had ended well, no more than 2 s before
  std::vector<std::size_t> maybe_cause;  // a worker that we stopped
  // libdlring reported the loss of this peer to the root, but no failure of that peer explains it:
  int left_early = -1;   // the peer had ended with code 0 before the others were done
  int lost_unseen = -1;  // the peer was alive, or is not on this node
  // The job's end is due to no failure, or to a wait for a rank. These workers had printed a
  // traceback before, still ran and had shown nothing since; the earliest first.
  std::vector<std::size_t> likely_cause;
  // The root gave up waiting for other ranks; its exit code is the job's.
  bool gave_up_waiting = false;
  // The stacks of the others at that time, and the ranks for which they waited, as far as their
  // stacks and their last words show it, or else by NCCL's counts. Of a root that speaks of a
  // time-out or of a lost connection.
  std::vector<StackGroup> groups;
  Suspects suspects;
  bool lost_host = false;        // the loss of a host came first; then there is no root
  bool lost_each_other = false;  // the peers accuse each other: the connection between them broke
};

// Finds the worker that failed first by itself, and dlaunch's exit code.
//
// A worker did not fail by itself
// - if libdlring had reported the loss of a peer to it (certain);
// - if it ended by a signal of ours, or with an exit code after one (a crash by another signal, an
//   error file, or a traceback from before the signal says that it had begun to fail before; such a
//   worker is the root only if no other failed by itself, and of several the one with the earliest
//   traceback). A traceback from more than 2 s before the first failure says nothing: that
//   exception was caught, and logged;
// - if its last words are about a broken connection or a wait for other ranks that it gave up
//   (complaint.h), and another worker failed by itself no more than 2 s later or had before. That
//   is a guess from text ("Connection reset by peer", …), so it never overrules anything but such a
//   tie. The last words are its error file, or else its
//   traceback, if it counts (if no signal was sent: if it is from no more than 2 s before the end),
//   whatever was written after that; else the last lines of stderr.
// Of the others, the earliest is the root, on the leader's clock; if another host's clock is not
// known well enough to tell, the verdict lists the failures that may have been the first. The loss
// of a host with its workers is the cause if none failed by itself before. If no worker remains,
// judge() follows libdlring's notes from peer to peer: to a peer that we stopped while it was
// failing, or that had left with code 0. If a broken connection is the root, the verdict names its
// possible peers. If the root waited, the stacks of the others
// show for whom (find_suspects() in stack_groups.h).
Verdict judge(const JobFacts& facts);

// Whether these lines, as that rank wrote them, are the last ones on the user's terminal.
using ShownLast = std::function<bool(int rank, const std::vector<std::string>& lines)>;

// Lines for people (no prefix, no trailing newline each). `color`: ANSI. The last lines of the
// root's stderr are not quoted if shown_last says that they stand just above. On success there are
// none, except with --goodput.
std::vector<std::string> render_text(const JobFacts& facts, const Verdict& verdict, bool color,
                                     const ShownLast& shown_last = nullptr);
// One JSON object, pretty printed.
std::string render_json(const JobFacts& facts, const Verdict& verdict);

// dlaunch's exit code if a worker could not be started.
int start_exit_code(Stage stage, int os_errno);

}  // namespace dlaunch
