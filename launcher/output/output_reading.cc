// OutputHub: reads the pipes by turns, and pauses while their text could not be written.
#include <algorithm>
#include <cerrno>
#include <utility>

#include <asio/post.hpp>

#include "base/log.h"
#include "launcher/output/output_hub_impl.h"

namespace dlaunch {
namespace {

constexpr std::size_t kReadBytesMerged = 16 << 10;  // ranks keep step, so that lines meet
constexpr int kReadsPerTurn = 4;                    // then the other workers' turn
constexpr Duration kTracebackPause = std::chrono::milliseconds(500);

}  // namespace

void OutputHub::Impl::arm(const StreamPtr& stream) {
  stream->wait([this, stream](asio::error_code ec) {
    if (!ec && stream->is_open()) on_readable(stream);
  });
}

// Back-pressure: the worker's pipe fills, and its writes block.
void OutputHub::Impl::on_readable(const StreamPtr& stream) {
  if (stream->log_file() && files.full()) return waiting_for_files.push_back(stream);
  if (stream->shown) {
    Target& to = target(stream->kind());
    if (to.sink.full() || !to.waiting.empty()) return to.waiting.push_back(stream);
  }
  take_turn(stream);
}

// Its text could not be written now.
bool OutputHub::Impl::held_up(const WorkerStream& stream) {
  return (stream.log_file() && files.full()) || (stream.shown && sink(stream.kind()).full());
}

void OutputHub::Impl::take_turn(const StreamPtr& stream) {
  for (int i = 0; i < kReadsPerTurn && stream->is_open(); ++i) {
    const std::size_t n = read_some(*stream, kReadBytes);
    flush_sinks();
    if (n < kReadBytes / 4) break;  // probably empty, or to be read in step with the others
    if (held_up(*stream)) break;
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
  stream.said = read_at;
  if (stream.kind() == OutputStream::err && !stream.reaped) {
    stream.tail.append(bytes);
    const auto before = stream.traceback.begun();
    stream.traceback.feed(read_at, bytes);
    if (stream.traceback.begun() != before) tell_traceback();
  }
  if (stream.slot() >= 0) {
    tails.append(read_at, stream.slot(), stream.kind(), bytes);
    arm_tails();
  }
  if (stream.log_file()) files.write(stream.log_file(), bytes);
  if (!stream.shown) return;
  stream.lines.feed(read_at, bytes,
                    [&](std::string_view line, bool continued) { show(stream, line, continued); });
  follow_bar(stream);
}

void OutputHub::Impl::arm_tails() {
  const auto due = tails.deadline();
  if (due == tails_due) return;
  tails_due = due;
  if (!due) return static_cast<void>(tails_timer.cancel());
  tails_timer.expires_at(*due);
  tails_timer.async_wait([this](asio::error_code ec) {
    if (ec) return;
    tails_due.reset();
    tails.on_clock(steady_now());
    arm_tails();
  });
}

// The callback looks at all workers: it is called once for a burst of them, and again after a
// pause.
void OutputHub::Impl::tell_traceback() {
  if (!on_traceback || traceback_waits) return;
  traceback_waits = true;
  traceback_timer.expires_at(std::max(read_at, traceback_next));
  traceback_timer.async_wait([this](asio::error_code ec) {
    if (ec) return;
    traceback_waits = false;
    traceback_next = steady_now() + kTracebackPause;
    if (on_traceback) on_traceback();
  });
}

// Reads only what its pipe holds now, even if a process goes on writing.
void OutputHub::Impl::read_held(WorkerStream& stream) {
  read_at = steady_now();
  for (std::size_t left = stream.is_open() ? stream.held() : 0; left > 0;) {
    const std::size_t n = read_some(stream, left);
    if (n == 0) break;
    left -= n;
  }
}

// Shows all that is there, and an unfinished line as a line.
void OutputHub::Impl::show_rest(WorkerStream& stream) {
  read_held(stream);
  stream.lines.finish(
      [&](std::string_view line, bool continued) { show(stream, line, continued); });
  follow_bar(stream);
}

// The worker was reaped. A grandchild that keeps writing is read while the job lasts, but not
// waited for.
void OutputHub::Impl::end_stream(const StreamPtr& stream) {
  show_rest(*stream);
  if (takes_stdin(stream->rank)) target(stream->kind()).printer.end_unfinished();
  if (stream->kind() == OutputStream::err) {
    last_words[stream->slot()] = {stream->tail, stream->traceback.last(), stream->log()};
  }
  if (merges_lines_of(stream->rank)) merger(stream->kind()).leave(stream->rank);
  stream->reaped = true;
}

void OutputHub::Impl::read_lingering() {
  for (auto& [slot, pair] : streams) {
    for (auto& stream : pair) {
      if (stream && stream->reaped && !held_up(*stream)) read_held(*stream);
    }
  }
}

void OutputHub::Impl::end_lingering(WorkerStream& stream) {
  show_rest(stream);
  stream.close();
}

// -- Room again

void OutputHub::Impl::on_drained(Target& to) {
  while (!to.waiting.empty() && !to.sink.full()) {
    const StreamPtr next = std::move(to.waiting.front());
    to.waiting.pop_front();
    if (next->is_open()) take_turn(next);
  }
  to.printer.draw_bars(steady_now());
  to.sink.flush();
  arm_timer();
  if (on_flushed) check_flushed();
}

void OutputHub::Impl::on_files_drained() {
  for (auto waiting = std::exchange(waiting_for_files, {}); !waiting.empty(); waiting.pop_front()) {
    if (waiting.front()->is_open()) on_readable(waiting.front());
  }
  on_drained(out);
  if (!one_target) on_drained(err);
}

// -- Lines that are passed on

void OutputHub::Impl::pass_on(UniqueFd from, OutputStream kind, std::string_view begun,
                              std::function<void()> ended) {
  auto stream = std::make_shared<WorkerStream>(loop, -1, -1, kind);
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

}  // namespace dlaunch
