// The report: what the user reads last when a job fails, and the same as JSON (--error-file).
// Pure: the agent collects the facts, these functions judge and render them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/flight.h"
#include "base/traceback.h"
#include "elastic/restart_policy.h"

namespace dlaunch {

enum class Stage { none, fork, chdir, bind_cpu, stdio, exec };  // of starting a worker

// How one worker of the last round ended.
struct WorkerEnd {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  std::string host;  // "": the job's own
  TimePoint started{};
  TimePoint ended{};       // when its pidfd told its agent
  Duration clock_error{};  // by which that may be wrong beside the leader's clock
  int exit_code = 0;       // valid if signal == 0
  int signal = 0;          // that killed it; 0: it exited
  bool core_dumped = false;
  std::string hung;           // why dlaunch killed it as hung, in words; "": it did not
  int signal_we_sent = 0;     // the last that dlaunch had sent it before it began to end; 0: none
  bool by_chaos = false;      // --chaos sent the SIGKILL
  bool oom_evidence = false;  // the memory cgroup counted a kill while this job ran
  std::string oom_text;       // "memory cgroup /x: limit 2 GiB, oom_kill rose from 0 to 1"
  std::vector<std::string> stderr_tail;
  std::optional<Traceback> traceback;  // the last, if it is from before any signal of ours
  // It had printed that, still ran, and had shown nothing since for so long when we first sent it a
  // signal; 0: that does not apply.
  Duration silent_since_traceback{};
  std::string stderr_log;           // the file of --log-dir that has all of it; "": none
  std::string error_file;           // contents of its TORCHELASTIC_ERROR_FILE, if it wrote one
  std::vector<FlightEntry> flight;  // its last operations of libdlring, oldest first
  int peer_lost = -1;               // the rank whose loss libdlring reported to it; -1: none
};

// Its last traceback is of what made it fail at that time, not of an exception that it had caught
// long before.
bool tells_of_failure(const WorkerEnd& end, TimePoint failed);

// What a failure looked like, for telling whether another one is the same: how it ended and its
// innermost words, without numbers, which differ from rank to rank, or with them. 0: too little is
// known.
std::uint64_t signature_of(const WorkerEnd& end, bool with_numbers = false);

// Its last words are of a connection that broke, perhaps because the other end had failed.
bool speaks_of_lost_peer(const WorkerEnd& end);

// Why the job ended, where no worker is to blame.
enum class JobEnd {
  succeeded,
  worker_failed,
  given_up,
  spawn_failed,
  interrupted,
  timed_out,
  setup_failed
};

struct JobFacts {
  JobEnd end = JobEnd::succeeded;
  std::string job_id;
  std::string host;
  std::string program;                // argv[0]
  std::vector<std::string> programs;  // by rank, where they run different ones
  int nproc = 1;
  int round = 1;
  int restarts_used = 0;
  RestartLimit max_restarts;
  std::string why_no_restart;  // "": none was asked for
  std::string ended_by;        // the option whose limit ended the job: "--max-restarts"; "": none
  std::string given_up;        // why the members gave up their round, in their words
  TimePoint started{};
  TimePoint ended{};
  int signal_received = 0;                        // interrupted: which
  std::optional<std::vector<std::string>> waits;  // who waited for whom when its end began
  Duration grace{};
  // spawn_failed, setup_failed:
  int failed_rank = -1;
  Stage failed_stage = Stage::none;
  int failed_errno = 0;
  std::string failed_what;         // "exec 'trian.py': No such file or directory"
  std::vector<WorkerEnd> workers;  // those that have ended, in the order of `ended`
  // In this round: the first host that was lost with its workers, and how many had ended before.
  std::string lost_host;
  std::vector<int> lost_ranks;
  std::size_t ended_before_loss = 0;
  std::vector<int> still_running;  // ranks that could not be reaped (uninterruptible)
};

// What the rank runs, of a job of several programs; "" of others.
std::string program_of(const JobFacts& facts, int rank);

struct Verdict {
  int exit_code = 0;                      // of dlaunch
  std::optional<std::size_t> root;        // index into JobFacts::workers
  bool by_traceback = false;              // the root's tells of this failure, not of an earlier one
  std::vector<std::size_t> consequences;  // that failed because the root did
  std::vector<std::size_t> stopped;       // ended by our own signals
  std::vector<std::size_t> own_failures;  // failed by themselves, later than the root
  std::vector<std::size_t> maybe_first;   // of these: on other hosts, and earlier for all we know
  // The root's last words are of a broken connection, and no failure explains it. At its other end
  // may have been
  std::vector<std::size_t> left_before;  // one that had ended well, no more than 2 s before
  std::vector<std::size_t> maybe_cause;  // one that we stopped
  // libdlring told the root that it lost this peer, and yet no failure of that peer explains it:
  int left_early = -1;   // the peer had ended with code 0 before the others were done
  int lost_unseen = -1;  // the peer was alive, or is none of this node's
  // What ended the job tells of no failure, or of a wait for somebody. These had printed a
  // traceback before, still ran and had shown nothing since; the earliest first.
  std::vector<std::size_t> likely_cause;
  bool lost_host = false;        // the loss of a host came first; then there is no root
  bool lost_each_other = false;  // the peers accuse each other: the connection between them broke
};

// Which worker failed first by itself, and what dlaunch exits with.
//
// A worker did not fail by itself
// - if libdlring had told it that a peer was lost (certain);
// - if it ended by a signal of ours, or with an exit code after one (a crash by another signal, an
//   error file, or a traceback from before the signal says that it had begun to fail before; such a
//   worker is the root only where no other failed by itself, and of several the one whose traceback
//   is the earliest). A traceback from more than 2 s before the first failure says nothing: that
//   exception was caught, and logged;
// - if its last words are of a broken connection, and another worker failed by itself no more than
//   2 s later or had before. That is a guess from text ("Connection reset by peer", …), so it never
//   overrules anything but such a tie. The last words are its error file, or else its traceback, if
//   it counts (where no signal was sent: if it is from no more than 2 s before the end), whatever
//   was written after that; else the last lines of stderr.
// Of the others, the earliest is the root, on the leader's clock; where another host's clock is not
// known well enough to tell, the verdict says whose failures may have been the first. The loss of a
// host with its workers is the cause where none failed by itself before. Where nobody is left, what
// libdlring noted is followed from peer to peer: a peer that we stopped while it was failing, or
// that had left with code 0. Where a broken connection is the root, the verdict says who may have
// been at its other end.
Verdict judge(const JobFacts& facts);

// Whether these lines, as that rank wrote them, are the last ones that the user's terminal shows.
using ShownLast = std::function<bool(int rank, const std::vector<std::string>& lines)>;

// Lines for people (no prefix, no trailing newline each); empty on success. `color`: ANSI. The last
// lines of the root's stderr are not quoted where shown_last says that they stand just above.
std::vector<std::string> render_text(const JobFacts& facts, const Verdict& verdict, bool color,
                                     const ShownLast& shown_last = nullptr);
// One JSON object, pretty printed.
std::string render_json(const JobFacts& facts, const Verdict& verdict);

// "SIGSEGV (segmentation fault)"
std::string describe_signal(int signal);

// What dlaunch exits with where a worker could not be started.
int start_exit_code(Stage stage, int os_errno);

}  // namespace dlaunch
