#include "launcher/output/output_hub.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include <asio/post.hpp>
#include <asio/steady_timer.hpp>

#include "base/log.h"
#include "launcher/output/file_writer.h"
#include "launcher/output/line_merger.h"
#include "launcher/output/output_printer.h"
#include "launcher/output/output_sink.h"
#include "launcher/output/own_descriptor.h"
#include "launcher/output/worker_stream.h"

namespace dlaunch {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kReadBytesMerged = 16 << 10;  // ranks keep step, so that lines meet
constexpr int kReadsPerTurn = 4;                    // then the other workers' turn
constexpr std::size_t kLargePipe = 1 << 20;
constexpr std::size_t kAllPipes = 32 << 20;

bool has(StreamSet set, bool error) {
  return set == StreamSet::both || set == (error ? StreamSet::err : StreamSet::out);
}

Result<UniqueFd> open_null(int access) {
  UniqueFd null(::open("/dev/null", access | O_CLOEXEC));
  if (!null) return errno_error("open /dev/null", errno);
  return null;
}

}  // namespace

struct OutputHub::Impl {
  Impl(asio::io_context& l, const Plan& p, OwnDescriptors own_fds);

  using StreamPtr = std::shared_ptr<WorkerStream>;

  // One of our own outputs, and the streams that wait for room in it: who waits first is read
  // first. (epoll would put those first whose workers write again soonest.)
  struct Target {
    Target(Impl& hub, int fd, const char* name)
        : sink(hub.loop, hub.files, fd, name,
               {[this, &hub] { hub.on_drained(*this); },
                [&hub](const Error& e) { hub.on_sink_failed(e); }}),
          printer(hub.plan, sink) {}
    OutputSink sink;
    OutputPrinter printer;
    std::deque<StreamPtr> waiting;
  };

  Target& target(bool error) { return error && !one_target ? err : out; }
  OutputSink& sink(bool error) { return target(error).sink; }
  LineMerger& merger(bool error) { return mergers[error ? 1 : 0]; }
  StreamPtr& stream_of(int slot, bool error) { return streams[slot][error ? 1 : 0]; }
  bool merges() const { return plan.output.mode == OutputMode::merged; }
  // Spares are alone.
  bool merges_lines_of(int rank) const { return merges() && rank >= 0; }

  Result<UniqueFd> open_stream(int round, int slot, int rank, bool error);
  Result<UniqueFd> open_stdin(int rank);
  bool shows(int rank, bool error) const;
  bool takes_stdin(int rank) const;
  bool may_ask(int rank, bool error);
  void arm(const StreamPtr& stream);
  void on_readable(const StreamPtr& stream);
  void take_turn(const StreamPtr& stream);
  std::size_t read_some(WorkerStream& stream, std::size_t most);
  void take(WorkerStream& stream, std::string_view bytes);
  void read_held(WorkerStream& stream);
  void end_stream(const StreamPtr& stream);
  void end_lingering();
  void pass_on(UniqueFd from, bool error, std::string_view begun, std::function<void()> ended);
  void end_passing(const StreamPtr& stream);
  void show(const WorkerStream& stream, std::string_view line, bool continued);
  void show_what_is_due(WorkerStream& stream);
  void rename(WorkerStream& stream, int rank);
  void show_merged(bool error, const std::vector<LineMerger::Merged>& lines);
  void flush_sinks();
  void on_drained(Target& to);
  void on_files_drained();
  void on_sink_failed(const Error& error);
  void own_line(std::string_view line);
  void arm_timer();
  void on_timer();
  bool all_written() const;
  void check_flushed();

  asio::io_context& loop;
  const Plan& plan;
  const OwnDescriptors own;
  FileWriter files;
  std::deque<StreamPtr> waiting_for_files;  // whose log files have no room
  const bool one_target;  // stdout and stderr are the same: one queue keeps lines whole
  Target out, err;
  asio::steady_timer timer, flush_timer;
  StdinPump stdin_pump;
  std::unique_ptr<char[]> read_buffer;              // one for all streams
  std::map<int, std::array<StreamPtr, 2>> streams;  // by slot
  // Of the stderr of a slot's worker that has ended.
  struct LastWords {
    StreamTail tail;
    std::optional<Traceback> traceback;
    std::string log;
  };
  std::map<int, LastWords> last_words;
  std::array<LineMerger, 2> mergers;
  TimePoint read_at{};    // what this turn shows was read then
  TimePoint passed_at{};  // what is passed on was last read then
  std::function<void()> on_flushed;
};

OutputHub::Impl::Impl(asio::io_context& l, const Plan& p, OwnDescriptors own_fds)
    : loop(l),
      plan(p),
      own(own_fds),
      files(l, {.drained = [this] { on_files_drained(); },
                .failed = [](const Error& error) { log_warn("{}", error.what); }}),
      one_target(same_target(own.out, own.err)),
      out(*this, own.out, "stdout"),
      err(*this, own.err, "stderr"),
      timer(l),
      flush_timer(l),
      stdin_pump(l, p.nodes.lifeline >= 0 ? -1 : own.in),
      read_buffer(std::make_unique_for_overwrite<char[]>(kReadBytes)) {
  // A reader that has left, or a log file at the user's size limit, is an error to be handled.
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
  stdin_pump.on_read([this] {
    for (Target* to : {&out, &err}) to->printer.typed();
  });
}

// -- Opening

bool OutputHub::Impl::shows(int rank, bool error) const {
  const auto& o = plan.output;
  if (o.mode == OutputMode::files || o.mode == OutputMode::none) return false;
  if (o.only_ranks && (rank < 0 || !o.only_ranks->contains(rank))) return false;
  return o.log_dir.empty() || has(o.tee, error);
}

bool OutputHub::Impl::takes_stdin(int rank) const {
  return plan.stdin_to == StdinPlan::all ||
         (plan.stdin_to == StdinPlan::one_rank && plan.stdin_rank == rank);
}

// Who sits at a terminal sees what the worker that reads it asks, although the line does not end.
bool OutputHub::Impl::may_ask(int rank, bool error) {
  return takes_stdin(rank) && sink(error).is_terminal() && ::isatty(own.in);
}

Result<UniqueFd> OutputHub::Impl::open_stream(int round, int slot, int rank, bool error) {
  if (plan.output.mode == OutputMode::raw) {
    UniqueFd copy(::fcntl(error ? own.err : own.out, F_DUPFD_CLOEXEC, 3));
    if (!copy) return errno_error("copy our own output for a worker", errno);
    return copy;
  }
  auto stream = std::make_shared<WorkerStream>(loop, slot, rank, error);
  stream->shown = shows(rank, error);
  stream->lines.set_asks(may_ask(rank, error));
  const bool logged = !plan.output.log_dir.empty();
  // Nobody wants it; of a spare that may change.
  if (!error && !stream->shown && !logged && rank >= 0) return open_null(O_WRONLY);
  if (logged) {
    if (auto ok = stream->open_log(plan.output.log_dir, round); !ok) {
      if (round == 1) return ok.error();
      log_warn("{}; the job goes on without this file", ok.error().what);
    }
  }
  // The kernel bounds what one user's pipes may hold together: large ones for few workers only.
  const std::size_t share = kAllPipes / (2 * static_cast<std::size_t>(std::max(plan.nproc, 1)));
  auto writing = stream->open_pipe(std::clamp(share, WorkerStream::kDefaultPipe, kLargePipe));
  if (!writing) return writing.error();
  if (stream->shown && merges_lines_of(rank)) merger(error).join(rank);
  arm(stream);
  stream_of(slot, error) = std::move(stream);
  return writing;
}

Result<UniqueFd> OutputHub::Impl::open_stdin(int rank) {
  return takes_stdin(rank) ? stdin_pump.add_taker() : open_null(O_RDONLY);
}

// -- Reading

void OutputHub::Impl::arm(const StreamPtr& stream) {
  stream->wait([this, stream](asio::error_code ec) {
    if (!ec && stream->is_open()) on_readable(stream);
  });
}

// Back-pressure: the worker's pipe fills, and its writes block.
void OutputHub::Impl::on_readable(const StreamPtr& stream) {
  if (stream->log_file() && files.full()) return waiting_for_files.push_back(stream);
  if (stream->shown) {
    Target& to = target(stream->error());
    if (to.sink.full() || !to.waiting.empty()) return to.waiting.push_back(stream);
  }
  take_turn(stream);
}

void OutputHub::Impl::take_turn(const StreamPtr& stream) {
  for (int i = 0; i < kReadsPerTurn && stream->is_open(); ++i) {
    const std::size_t n = read_some(*stream, kReadBytes);
    flush_sinks();
    if (n < kReadBytes / 4) break;  // probably empty, or to be read in step with the others
    if (stream->shown && sink(stream->error()).full()) break;
    if (stream->log_file() && files.full()) break;
  }
  arm_timer();
  if (stream->is_open()) return arm(stream);
  if (stream->passed_on) end_passing(stream);
}

// One read; returns the number of bytes. Closes at the end of the stream.
std::size_t OutputHub::Impl::read_some(WorkerStream& stream, std::size_t most) {
  read_at = steady_now();
  const long n =
      stream.read(read_buffer.get(), std::min(most, merges() ? kReadBytesMerged : kReadBytes));
  if (n == 0 || (n < 0 && errno != EAGAIN)) stream.close();  // every writer has closed it
  if (n <= 0) return 0;
  if (stream.passed_on) passed_at = read_at;
  take(stream, {read_buffer.get(), static_cast<std::size_t>(n)});
  return static_cast<std::size_t>(n);
}

void OutputHub::Impl::take(WorkerStream& stream, std::string_view bytes) {
  if (stream.error() && !stream.reaped) {
    stream.tail.append(bytes);
    stream.traceback.feed(read_at, bytes);
  }
  if (stream.log_file()) files.write(stream.log_file(), bytes);
  if (!stream.shown) return;
  stream.lines.feed(read_at, bytes,
                    [&](std::string_view line, bool continued) { show(stream, line, continued); });
}

// What its pipe holds now, and no more, whoever goes on writing.
void OutputHub::Impl::read_held(WorkerStream& stream) {
  read_at = steady_now();
  for (std::size_t left = stream.is_open() ? stream.held() : 0; left > 0;) {
    const std::size_t n = read_some(stream, left);
    if (n == 0) break;
    left -= n;
  }
}

// The worker was reaped. A grandchild that keeps writing is listened to while the job lasts, but
// not waited for.
void OutputHub::Impl::end_stream(const StreamPtr& stream) {
  read_held(*stream);
  stream->lines.finish(
      [&](std::string_view line, bool continued) { show(*stream, line, continued); });
  if (takes_stdin(stream->rank)) target(stream->error()).printer.end_unfinished();
  if (stream->error()) {
    last_words[stream->slot()] = {stream->tail, stream->traceback.last(), stream->log()};
  }
  if (merges_lines_of(stream->rank)) merger(stream->error()).leave(stream->rank);
  stream->reaped = true;
}

void OutputHub::Impl::end_lingering() {
  for (auto& [slot, pair] : streams) {
    for (auto& stream : pair) {
      if (stream && stream->reaped) stream->close();
    }
  }
}

// -- Lines that are passed on

void OutputHub::Impl::pass_on(UniqueFd from, bool error, std::string_view begun,
                              std::function<void()> ended) {
  auto stream = std::make_shared<WorkerStream>(loop, -1, -1, error);
  stream->shown = true;
  stream->passed_on = std::move(ended);
  if (auto ok = stream->adopt(std::move(from)); !ok) {
    log_warn("{}", ok.error().what);
    return asio::post(loop, std::exchange(stream->passed_on, nullptr));
  }
  read_at = steady_now();
  take(*stream, begun);
  flush_sinks();
  arm(stream);
}

void OutputHub::Impl::end_passing(const StreamPtr& stream) {
  stream->lines.finish(
      [&](std::string_view line, bool continued) { show(*stream, line, continued); });
  flush_sinks();
  asio::post(loop, std::exchange(stream->passed_on, nullptr));
}

// -- Showing

void OutputHub::Impl::show(const WorkerStream& stream, std::string_view line, bool continued) {
  if (stream.passed_on) {
    OutputSink& to = sink(stream.error());
    if (to.gone()) return;
    target(stream.error()).printer.end_unfinished();
    to.append(line);
    if (continued) to.append(kContinuedMark);
    to.append('\n');
  } else if (!merges_lines_of(stream.rank)) {
    target(stream.error()).printer.print(stream.rank, read_at, line, continued);
  } else if (continued) {
    merger(stream.error()).add(read_at, stream.rank, std::string(line).append(kContinuedMark));
  } else {
    merger(stream.error()).add(read_at, stream.rank, line);
  }
}

void OutputHub::Impl::rename(WorkerStream& stream, int rank) {
  if (stream.shown && merges_lines_of(stream.rank)) merger(stream.error()).leave(stream.rank);
  stream.rank = rank;
  stream.shown = shows(rank, stream.error());
  stream.lines.set_asks(may_ask(rank, stream.error()));
  if (stream.shown && merges_lines_of(rank)) merger(stream.error()).join(rank);
}

void OutputHub::Impl::show_merged(bool error, const std::vector<LineMerger::Merged>& lines) {
  for (const auto& line : lines) target(error).printer.print(line.ranks, line.said, line.text);
}

void OutputHub::Impl::flush_sinks() {
  if (merges()) {
    const auto now = steady_now();
    for (const bool error : {false, true}) show_merged(error, merger(error).take(now));
  }
  out.sink.flush();
  if (!one_target) err.sink.flush();
  if (on_flushed) check_flushed();
}

void OutputHub::Impl::on_drained(Target& to) {
  while (!to.waiting.empty() && !to.sink.full()) {
    const StreamPtr next = std::move(to.waiting.front());
    to.waiting.pop_front();
    if (next->is_open()) take_turn(next);
  }
  if (on_flushed) check_flushed();
}

void OutputHub::Impl::on_files_drained() {
  for (auto waiting = std::exchange(waiting_for_files, {}); !waiting.empty(); waiting.pop_front()) {
    if (waiting.front()->is_open()) on_readable(waiting.front());
  }
  on_drained(out);
  if (!one_target) on_drained(err);
}

// The job goes on, and so do the log files and the report.
void OutputHub::Impl::on_sink_failed(const Error& error) {
  own_line("dlaunch: warning: " + error.what + "; nothing more is shown there");
}

// Whole lines only ever enter a sink's queue, so none is torn by another.
void OutputHub::Impl::own_line(std::string_view line) {
  OutputSink& to = sink(true);
  if (to.gone()) return;
  target(true).printer.end_unfinished();
  to.append(line);
  to.append('\n');
  to.flush();
}

// -- Time: progress bars, questions, and lines held back to be merged

void OutputHub::Impl::arm_timer() {
  auto next = kNever;
  auto consider = [&](const std::optional<TimePoint>& at) {
    next = std::min(next, at.value_or(kNever));
  };
  for (const auto& m : mergers) consider(m.deadline());
  for (const auto& [rank, pair] : streams) {
    for (const auto& stream : pair) {
      if (stream) consider(stream->lines.deadline());
    }
  }
  if (next == kNever || next == timer.expiry()) return;
  timer.expires_at(next);
  timer.async_wait([this](asio::error_code ec) {
    if (!ec) on_timer();
  });
}

void OutputHub::Impl::on_timer() {
  read_at = steady_now();
  timer.expires_at(TimePoint::min());
  for (auto& [slot, pair] : streams) {
    for (auto& stream : pair) {
      if (!stream || stream->lines.deadline().value_or(kNever) > read_at) continue;
      show_what_is_due(*stream);
    }
  }
  flush_sinks();
  arm_timer();
}

void OutputHub::Impl::show_what_is_due(WorkerStream& stream) {
  const std::string asked = stream.lines.take_unfinished(read_at);
  if (!asked.empty() && stream.shown) {
    target(stream.error()).printer.print_unfinished(stream.rank, read_at, asked);
  }
  stream.lines.show_progress(
      read_at, [&](std::string_view line, bool continued) { show(stream, line, continued); });
}

bool OutputHub::Impl::all_written() const {
  const auto done = [](const OutputSink& sink) { return sink.empty() || sink.gone(); };
  return done(out.sink) && (one_target || done(err.sink)) && files.empty();
}

// Twice: what the writer has to tell of the last bytes, which may be more to write, comes between.
void OutputHub::Impl::check_flushed() {
  if (!all_written()) return;
  asio::post(loop, [this] {
    if (!on_flushed || !all_written()) return;
    flush_timer.cancel();
    std::exchange(on_flushed, nullptr)();
  });
}

// -- The public face

OutputHub::OutputHub(asio::io_context& loop, const Plan& plan)
    : OutputHub(loop, plan, OwnDescriptors()) {}
OutputHub::OutputHub(asio::io_context& loop, const Plan& plan, OwnDescriptors own)
    : impl_(std::make_unique<Impl>(loop, plan, own)) {}
OutputHub::~OutputHub() = default;

Result<OutputHub::WorkerStdio> OutputHub::open_worker(int round, int slot, int rank) {
  // Whoever still writes on behalf of an earlier worker there is not heard any more.
  if (const auto old = impl_->streams.find(slot); old != impl_->streams.end()) {
    for (const auto& stream : old->second) {
      if (stream) stream->close();
    }
    impl_->streams.erase(old);
  }
  impl_->last_words.erase(slot);
  auto in = impl_->open_stdin(rank);
  if (!in) return in.error();
  auto out = impl_->open_stream(round, slot, rank, false);
  if (!out) return out.error();
  auto err = impl_->open_stream(round, slot, rank, true);
  if (!err) return err.error();
  return WorkerStdio{std::move(*in), std::move(*out), std::move(*err)};
}

void OutputHub::set_rank(int slot, int rank) {
  const auto found = impl_->streams.find(slot);
  if (found == impl_->streams.end()) return;
  for (const auto& stream : found->second) {
    if (stream && stream->rank != rank) impl_->rename(*stream, rank);
  }
}

void OutputHub::before_signal(int slot) {
  const auto it = impl_->streams.find(slot);
  if (it == impl_->streams.end() || !it->second[1]) return;
  WorkerStream& stream = *it->second[1];
  impl_->read_held(stream);
  stream.traceback.stop();
  impl_->flush_sinks();
  impl_->arm_timer();
}

void OutputHub::worker_ended(int slot) {
  const auto it = impl_->streams.find(slot);
  if (it == impl_->streams.end()) return;
  for (const auto& stream : it->second) {
    if (stream && !stream->reaped) impl_->end_stream(stream);
  }
  impl_->flush_sinks();
  impl_->arm_timer();
}

void OutputHub::own_line(std::string_view line) { impl_->own_line(line); }

void OutputHub::pass_on(UniqueFd from, bool error, std::string_view begun,
                        std::function<void()> ended) {
  impl_->pass_on(std::move(from), error, begun, std::move(ended));
}

TimePoint OutputHub::passed_at() const {
  const bool held_up = !impl_->out.waiting.empty() || !impl_->err.waiting.empty() ||
                       !impl_->waiting_for_files.empty();
  return held_up ? steady_now() : impl_->passed_at;
}

void OutputHub::flush(Duration limit, std::function<void()> done) {
  impl_->end_lingering();
  for (const bool error : {false, true}) {
    impl_->show_merged(error, impl_->merger(error).take_all());
    impl_->target(error).printer.end_unfinished();
  }
  impl_->on_flushed = std::move(done);
  const auto until = deadline_after(steady_now(), limit);
  if (until != kNever) {
    impl_->flush_timer.expires_at(until);
    impl_->flush_timer.async_wait([impl = impl_.get()](asio::error_code ec) {
      if (!ec && impl->on_flushed) asio::post(impl->loop, std::exchange(impl->on_flushed, nullptr));
    });
  }
  impl_->flush_sinks();
}

std::vector<std::string> OutputHub::stderr_tail(int slot, std::size_t lines) const {
  const auto it = impl_->last_words.find(slot);
  if (it == impl_->last_words.end()) return {};
  return it->second.tail.lines(lines);
}

std::optional<Traceback> OutputHub::last_traceback(int slot) const {
  const auto it = impl_->last_words.find(slot);
  return it == impl_->last_words.end() ? std::nullopt : it->second.traceback;
}

std::string OutputHub::stderr_log(int slot) const {
  const auto it = impl_->last_words.find(slot);
  return it == impl_->last_words.end() ? "" : it->second.log;
}

void OutputHub::close_stdin() { impl_->stdin_pump.close(); }

StdinPump& OutputHub::stdin_pump() { return impl_->stdin_pump; }

}  // namespace dlaunch
