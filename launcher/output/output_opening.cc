// OutputHub: a worker's stdin, stdout and stderr, and whether its output is shown.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "launcher/output/output_hub_impl.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLargePipe = 1 << 20;
constexpr std::size_t kAllPipes = 32 << 20;

// How often a progress bar is shown as a line: on the user's request; in a pipe or file.
constexpr Duration kBarLines = std::chrono::seconds(1), kBarLinesInFile = std::chrono::seconds(30);

bool has_stream(StreamSet set, OutputStream kind) {
  return set == StreamSet::both ||
         set == (kind == OutputStream::err ? StreamSet::err : StreamSet::out);
}

Result<UniqueFd> open_null(int access) {
  UniqueFd null(::open("/dev/null", access | O_CLOEXEC));
  if (!null) return errno_error("open /dev/null", errno);
  return null;
}

}  // namespace

bool OutputHub::Impl::shows(int rank, OutputStream kind) const {
  const auto& o = plan.output;
  if (o.mode == OutputMode::files || o.mode == OutputMode::none) return false;
  if (o.only_ranks && (rank < 0 || !o.only_ranks->contains(rank))) return false;
  if (o.log_dir.empty()) return true;
  const auto local = local_ranks.find(rank);
  const auto said = o.tee_of.find(local == local_ranks.end() ? rank : local->second);
  return has_stream(said == o.tee_of.end() ? o.tee : said->second, kind);
}

bool OutputHub::Impl::takes_stdin(int rank) const {
  return plan.stdin_to == StdinPlan::all ||
         (plan.stdin_to == StdinPlan::one_rank && plan.stdin_rank == rank);
}

// The user at a terminal sees the question of the worker that reads it, although its line has no
// end.
bool OutputHub::Impl::may_ask(int rank, OutputStream kind) {
  return takes_stdin(rank) && sink(kind).is_terminal() && ::isatty(own.in);
}

BarPace OutputHub::Impl::pace_of(OutputStream kind) const {
  if (plan.output.bars == BarMode::lines) return {Duration::zero(), kBarLines};
  const bool as_lines =
      !(kind == OutputStream::err && !one_target ? err : out).printer.draws_bars();
  if (plan.output.bars == BarMode::at_end || !as_lines) return {};
  return {kBarLinesInFile, kBarLinesInFile};
}

Result<UniqueFd> OutputHub::Impl::open_stream(int round, int slot, int rank, OutputStream kind) {
  if (plan.output.mode == OutputMode::raw) {
    UniqueFd copy(::fcntl(kind == OutputStream::err ? own.err : own.out, F_DUPFD_CLOEXEC, 3));
    if (!copy) return errno_error("copy our own output for a worker", errno);
    return copy;
  }
  auto stream = std::make_shared<WorkerStream>(loop, slot, rank, kind);
  stream->shown = shows(rank, kind);
  stream->lines.set_asks(may_ask(rank, kind));
  stream->lines.set_pace(pace_of(kind));
  const bool logged = !plan.output.log_dir.empty();
  // The output is not needed; a spare's may be later.
  if (kind == OutputStream::out && !stream->shown && !logged && rank >= 0)
    return open_null(O_WRONLY);
  if (logged) {
    if (auto ok = stream->open_log(plan.output.log_dir, round); !ok) {
      if (round == 1) return ok.error();
      log_warn("{}; the job continues without this file", ok.error().what);
    }
  }
  // The kernel limits the total size of a user's pipes: large ones for few workers only.
  const std::size_t share = kAllPipes / (2 * static_cast<std::size_t>(std::max(plan.nproc, 1)));
  auto writing = stream->open_pipe(std::clamp(share, WorkerStream::kDefaultPipe, kLargePipe));
  if (!writing) return writing.error();
  if (stream->shown && merges_lines_of(rank)) merger(kind).join(rank);
  arm(stream);
  stream_of(slot, kind) = std::move(stream);
  return writing;
}

Result<UniqueFd> OutputHub::Impl::open_stdin(int rank) {
  if (!takes_stdin(rank)) return open_null(O_RDONLY);
  const bool alone = plan.stdin_to == StdinPlan::one_rank;
  return alone && stdin_pump.can_hand_over() ? stdin_pump.hand_over() : stdin_pump.add_taker();
}

// All of the worker's input and output is on a terminal.
Result<OutputHub::WorkerStdio> OutputHub::Impl::open_terminal(const std::string& path) {
  WorkerStdio stdio;
  for (UniqueFd* fd : {&stdio.in, &stdio.out, &stdio.err}) {
    fd->reset(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY));
    if (!*fd) return errno_error("open " + path, errno);
  }
  return stdio;
}

// A shell's loop over the same input, or a script that the shell reads from it, misses those
// bytes.
void OutputHub::Impl::close_stdin() {
  stdin_pump.close();
  const bool elsewhere_perhaps = plan.nodes.lifeline >= 0 && plan.stdin_to == StdinPlan::all;
  const auto unread = elsewhere_perhaps ? 0 : stdin_pump.unread();
  if (unread == 0) return;
  log_warn(
      "dlaunch read {} of stdin that no worker has read; use --stdin none (or </dev/null) in loops "
      "and scripts",
      unread == 1 ? "1 byte" : fmt::format("{} bytes", unread));
}

void OutputHub::Impl::rename(WorkerStream& stream, int rank) {
  if (stream.shown && merges_lines_of(stream.rank)) merger(stream.kind()).leave(stream.rank);
  forget_bar(stream);
  stream.rank = rank;
  stream.shown = shows(rank, stream.kind());
  stream.lines.set_asks(may_ask(rank, stream.kind()));
  if (stream.shown && merges_lines_of(rank)) merger(stream.kind()).join(rank);
  follow_bar(stream);
}

}  // namespace dlaunch
