// OutputHub: brings lines to our own outputs: at once, merged, or when they are due.
#include <algorithm>
#include <utility>

#include <asio/post.hpp>

#include "launcher/output/output_hub_impl.h"

namespace dlaunch {

void OutputHub::Impl::show(const WorkerStream& stream, std::string_view line, bool continued) {
  if (stream.passed_on) {
    OutputSink& to = sink(stream.kind());
    if (to.gone()) return;
    target(stream.kind()).printer.make_way();
    to.append(line);
    if (continued) to.append(kContinuedMark);
    to.append('\n');
  } else if (!merges_lines_of(stream.rank)) {
    target(stream.kind()).printer.print(stream.rank, read_at, line, continued);
  } else if (continued) {
    merger(stream.kind()).add(read_at, stream.rank, std::string(line).append(kContinuedMark));
  } else {
    merger(stream.kind()).add(read_at, stream.rank, line);
  }
}

void OutputHub::Impl::show_merged(OutputStream kind, const std::vector<LineMerger::Merged>& lines) {
  for (const auto& line : lines) target(kind).printer.print(line.ranks, line.said, line.text);
}

void OutputHub::Impl::flush_sinks() {
  if (merges()) {
    const auto now = steady_now();
    for (const OutputStream kind : kOutputStreams) show_merged(kind, merger(kind).take(now));
  }
  for (Target* to : {&out, &err}) to->printer.draw_bars(steady_now());
  out.sink.flush();
  if (!one_target) err.sink.flush();
  if (on_flushed) check_flushed();
}

// The job goes on, and so do the log files and the report.
void OutputHub::Impl::on_sink_failed(const Error& error) {
  own_line("dlaunch: warning: " + error.what + "; dlaunch shows nothing more there");
}

// Whole lines only ever enter a sink's queue, so none is torn by another.
void OutputHub::Impl::own_line(std::string_view line) {
  OutputSink& to = sink(OutputStream::err);
  if (to.gone()) return;
  target(OutputStream::err).printer.make_way();
  to.append(line);
  to.append('\n');
  target(OutputStream::err).printer.draw_bars(steady_now());
  to.flush();
}

// -- Time: progress bars, questions, and lines held back to be merged

void OutputHub::Impl::arm_timer() {
  auto next = kNever;
  auto consider = [&](const std::optional<TimePoint>& at) {
    next = std::min(next, at.value_or(kNever));
  };
  for (const auto& m : mergers) consider(m.deadline());
  for (const Target* to : {&out, &err}) consider(to->printer.bars_due());
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
    target(stream.kind()).printer.print_unfinished(stream.rank, read_at, asked);
  }
  const bool states = plan.output.bars != BarMode::first || has_first_bar(stream);
  stream.lines.show_progress(read_at, states, [&](std::string_view line, bool continued) {
    show(stream, line, continued);
  });
  follow_bar(stream);
}

// No rank before it has a bar on that output.
bool OutputHub::Impl::has_first_bar(const WorkerStream& stream) const {
  const auto before = [&](const StreamPtr& other) {
    return other && other->shown && other->rank < stream.rank && other->rank >= 0 &&
           other->kind() == stream.kind() && !other->lines.bar().empty();
  };
  return std::ranges::none_of(
      streams, [&](const auto& pair) { return std::ranges::any_of(pair.second, before); });
}

// Draws the present state of its progress bars below all lines.
void OutputHub::Impl::follow_bar(WorkerStream& stream) {
  OutputPrinter& printer = target(stream.kind()).printer;
  if (!stream.shown || !printer.draws_bars()) return;
  if (stream.bar_version == stream.lines.bar_version()) return;
  stream.bar_version = stream.lines.bar_version();
  printer.set_bar(stream.who(), stream.lines.bar());
}

void OutputHub::Impl::forget_bar(WorkerStream& stream) {
  target(stream.kind()).printer.set_bar(stream.who(), {});
  stream.bar_version = 0;
}

bool OutputHub::Impl::all_written() const {
  const auto done = [](const OutputSink& sink) { return sink.empty() || sink.gone(); };
  return done(out.sink) && (one_target || done(err.sink)) && files.empty();
}

// Twice: in between the writer reports on the last bytes, which may need more writing.
void OutputHub::Impl::check_flushed() {
  if (!all_written()) return;
  asio::post(loop, [this] {
    if (!on_flushed || !all_written()) return;
    flush_timer.cancel();
    std::exchange(on_flushed, nullptr)();
  });
}

}  // namespace dlaunch
