// OutputHub: all output to the user's terminal goes through it: the workers' lines, our own
// messages, the final report. It owns the worker pipes' reading ends, the log files, and our stdout
// and stderr, so that no line is torn by another and nothing is lost.
//
// - Our reader is slow: we stop reading the workers' pipes, they fill, and the workers' writes wait
//   (back-pressure). When there is room again, the pipe that has waited longest is read first.
// - Our reader is gone (`dlaunch … | head`): we show nothing more there. The workers do not know;
//   the job, the log files and the report go on.
// - Our output cannot be written otherwise (disk full): the same, with one message.
// - A log file cannot be written: one warning that names it; the job goes on without that file.
// - A grandchild keeps a write end open after its worker has ended: we read the pipe while the job
//   lasts, and what it holds then, but never wait for it.
// - stdout and stderr are the same file, pipe or terminal: one queue for both keeps lines whole.
//
// An asio shell; pure line cores decide what happens to bytes (line_splitter.h, …).
// One thread, the loop's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/output_tail.h"
#include "launcher/output/stdin_pump.h"
#include "launcher/output/traceback_watch.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

class OutputHub {
 public:
  // Our own stdin, stdout and stderr; they stay open and keep their flags.
  struct OwnDescriptors {
    int in = 0, out = 1, err = 2;
  };
  // `plan` must outlive the hub. From here on the process ignores SIGPIPE and SIGXFSZ.
  OutputHub(asio::io_context& loop, const Plan& plan);
  OutputHub(asio::io_context& loop, const Plan& plan, OwnDescriptors own);
  ~OutputHub();
  OutputHub(const OutputHub&) = delete;
  OutputHub& operator=(const OutputHub&) = delete;

  // The descriptors a worker gets as 0, 1 and 2; the caller closes them once it has spawned.
  // Creates log files first: in round 1 a full or read-only disk is an Error naming the file, later
  // one warning.
  struct WorkerStdio {
    UniqueFd in, out, err;
  };
  // slot: the worker's, one worker at a time; rank: shown and logged as this rank, -1: a spare.
  Result<WorkerStdio> open_worker(int round, int slot, int rank);

  // The slot's worker is this rank from now on.
  void set_rank(int slot, int rank);

  // Sets the local ranks of this host's workers. Call it before open_worker and set_rank for them.
  void set_local_ranks(LocalRanks local_ranks);

  // Call it before a signal is sent to the slot's worker that may end it: reads what its stderr
  // holds, which was written before. A traceback that comes later may be the answer to the signal,
  // and does not count for last_traceback().
  void before_signal(int slot);

  // The worker was reaped: reads, prints and writes what its pipes still hold before it returns;
  // stderr_tail() is complete then. Call once per open_worker.
  void worker_ended(int slot);

  // Reads what the pipes of ended workers hold now: their descendants may still write. Call it
  // while you wait for them outside the loop.
  void read_leftovers();

  // One line of dlaunch's own, without newline, to stderr, in order with what was shown before.
  void own_line(std::string_view line);

  // Whether our stderr is a terminal where rows can be drawn in place.
  bool draws() const;
  // The job's own line, which stands below all lines of such a terminal; as LiveBars::set_own().
  void set_own_row(std::string row, bool urgent);
  // Keeps the rows that are drawn now: the shell is about to write below them.
  void leave_rows();

  // Shows the lines from a pipe unchanged, on our stdout or stderr; `begun` is what was read of
  // them before. Closes the pipe at its end, and calls `ended`.
  void pass_on(UniqueFd from, OutputStream kind, std::string_view begun,
               std::function<void()> ended);
  // When something last came through pass_on(); now, while our own reader holds it up.
  TimePoint passed_at() const;

  // Calls `done` once all output so far is written, or our reader is gone, or `limit` has passed
  // with a reader that does not read.
  void flush(Duration limit, std::function<void()> done);

  // When the slot's running worker last wrote to its stdout or stderr; nullopt: it has not, or its
  // output does not come here.
  std::optional<TimePoint> said_at(int slot) const;

  // When the last traceback of the slot's running worker began; nullopt: none.
  std::optional<TimePoint> threw_at(int slot) const;
  // That traceback, as far as it is printed.
  std::optional<Traceback> traceback(int slot) const;
  // Calls `begun` when a worker begins to print a traceback, once for a burst of them; null: no
  // call.
  void on_traceback(std::function<void()> begun);

  // The last lines of the slot's worker, as OutputTails::ask(); tell gets the lines of all slots.
  // null: nobody gets them any more.
  void on_tail(OutputTails::Tell tell);
  void ask_tail(int slot, Duration lasts, bool again);

  // The last lines of the stderr of the slot's latest worker, oldest first, at most `lines` of
  // them; kept in every mode but raw.
  std::vector<std::string> stderr_tail(int slot, std::size_t lines) const;
  // The last exception in that stderr; kept likewise.
  std::optional<Traceback> last_traceback(int slot) const;
  // The log file with all of that stderr; "": none, or not to the end.
  std::string stderr_log(int slot) const;

  // Our stderr is a terminal, and these lines of that rank are the last ones on it. It does not
  // know lines of workers that another dlaunch shows or passes on to us.
  bool shown_last(int rank, const std::vector<std::string>& lines) const;

  // Stops reading our stdin (at the end of a job).
  void close_stdin();
  // For workers of other hosts, or for our workers under another host's leader.
  StdinPump& stdin_pump();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dlaunch
