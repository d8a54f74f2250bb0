// OutputHub: everything that reaches the user's terminal goes through here: the workers' lines,
// our own messages, the final report. It owns the worker pipes' reading ends, the log files, and
// our stdout and stderr, so that no line is torn by another and nothing is lost.
//
// - Our reader is slow: we stop reading the workers' pipes, they fill, and the workers' writes wait
//   (back-pressure). Who waits first is read first when there is room again.
// - Our reader is gone (`dlaunch … | head`): nothing more is shown there. The workers do not know;
//   the job, the log files and the report go on.
// - Our output cannot be written otherwise (disk full): the same, with one message.
// - A log file cannot be written: one warning that names it; the job goes on without that file.
// - A write end that some grandchild keeps open after its worker has ended: listened to while the
//   job lasts, never waited for.
// - stdout and stderr are the same file, pipe or terminal: one queue for both keeps lines whole.
//
// An asio shell; what becomes of bytes is decided by pure line cores (line_splitter.h, …).
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
#include "launcher/output/stdin_pump.h"
#include "launcher/plan/plan.h"
#include "launcher/report/traceback_watch.h"

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
  // slot: where the worker runs, of which there is one at a time; rank: under which it is shown and
  // logged, -1: a spare.
  Result<WorkerStdio> open_worker(int round, int slot, int rank);

  // The slot's worker is this rank from now on.
  void set_rank(int slot, int rank);

  // The local ranks of this host's workers from now on, before open_worker and set_rank of them.
  void set_local_ranks(LocalRanks local_ranks);

  // A signal is about to be sent to the slot's worker that may end it: what its stderr holds was
  // written before and is read now. A traceback that comes later may be the answer to the signal,
  // and is none for last_traceback().
  void before_signal(int slot);

  // The worker was reaped: what its pipes still hold is read, printed and written before this
  // returns, and stderr_tail() is complete. Call once per open_worker.
  void worker_ended(int slot);

  // One line of dlaunch's own, without newline, to stderr, in order with what was shown before.
  void own_line(std::string_view line);

  // Shows the lines that come from a pipe as they are, on our stdout or stderr; `begun` is what was
  // read of them already. Closes it at its end, and calls `ended`.
  void pass_on(UniqueFd from, bool error, std::string_view begun, std::function<void()> ended);
  // When something last came of what is passed on; now, while our own reader holds it up.
  TimePoint passed_at() const;

  // Calls `done` once everything accepted so far has been written out, or our reader is gone, or
  // `limit` has passed with a reader that does not read.
  void flush(Duration limit, std::function<void()> done);

  // When the slot's worker, which runs, wrote last to its stdout or stderr; nullopt: not yet, or
  // that does not come here.
  std::optional<TimePoint> said_at(int slot) const;

  // When the traceback began that the slot's worker, which runs, printed last; nullopt: none.
  std::optional<TimePoint> threw_at(int slot) const;
  // Called when some worker begins to print a traceback, once for a burst of them; null: nobody is.
  void on_traceback(std::function<void()> begun);

  // The last lines of the stderr of the slot's latest worker, oldest first, at most `lines` of
  // them; kept in every mode but raw.
  std::vector<std::string> stderr_tail(int slot, std::size_t lines) const;
  // The last exception that it told of there, likewise.
  std::optional<Traceback> last_traceback(int slot) const;
  // The log file that has all of it; "": none, or not to the end.
  std::string stderr_log(int slot) const;

  // Our stderr is a terminal, and these lines of that rank are the last that it shows. Lines of
  // workers that another dlaunch shows, or passes on to us, are not known.
  bool shown_last(int rank, const std::vector<std::string>& lines) const;

  // Stops reading our stdin (at the end of a job).
  void close_stdin();
  // With workers of other hosts, or for those that another dlaunch leads.
  StdinPump& stdin_pump();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dlaunch
