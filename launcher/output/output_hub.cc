#include "launcher/output/output_hub.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include <asio/post.hpp>

#include "base/log.h"
#include "launcher/output/output_hub_impl.h"

namespace dlaunch {

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
      traceback_timer(l),
      tails_timer(l),
      stdin_pump(l, p.nodes.lifeline >= 0 ? -1 : own.in),
      read_buffer(std::make_unique_for_overwrite<char[]>(kReadBytes)),
      tails([this](int slot, std::uint64_t lost, std::vector<OutputTail::Line> lines) {
        if (on_tail) on_tail(slot, lost, std::move(lines));
      }) {
  // A reader that has left, or a log file at the user's size limit, must be an error to handle.
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
  stdin_pump.on_read([this] {
    for (Target* to : {&out, &err}) to->printer.typed();
  });
}

// -- The public face

OutputHub::OutputHub(asio::io_context& loop, const Plan& plan)
    : OutputHub(loop, plan, OwnDescriptors()) {}
OutputHub::OutputHub(asio::io_context& loop, const Plan& plan, OwnDescriptors own)
    : impl_(std::make_unique<Impl>(loop, plan, own)) {}
OutputHub::~OutputHub() = default;

Result<OutputHub::WorkerStdio> OutputHub::open_worker(int round, int slot, int rank) {
  // Stops reading from descendants of an earlier worker there that still write.
  if (const auto old = impl_->streams.find(slot); old != impl_->streams.end()) {
    for (const auto& stream : old->second) {
      if (!stream) continue;
      impl_->end_lingering(*stream);
      impl_->forget_bar(*stream);
    }
    impl_->streams.erase(old);
  }
  impl_->last_words.erase(slot);
  const auto& panes = impl_->plan.output.panes;
  if (rank >= 0 && static_cast<std::size_t>(rank) < panes.size()) {
    return impl_->open_terminal(panes[static_cast<std::size_t>(rank)]);
  }
  // The terminal itself, even if our own input or output is something else.
  if (impl_->plan.debugging.has_terminal(rank)) return impl_->open_terminal("/dev/tty");
  auto in = impl_->open_stdin(rank);
  if (!in) return in.error();
  auto out = impl_->open_stream(round, slot, rank, OutputStream::out);
  if (!out) return out.error();
  auto err = impl_->open_stream(round, slot, rank, OutputStream::err);
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

void OutputHub::set_local_ranks(LocalRanks local_ranks) {
  if (impl_->local_ranks == local_ranks) return;
  impl_->local_ranks = std::move(local_ranks);
  for (Impl::Target* to : {&impl_->out, &impl_->err}) to->printer.forget_prefixes();
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
  impl_->tails.end(steady_now(), slot);
  impl_->flush_sinks();
  impl_->arm_timer();
}

void OutputHub::read_leftovers() {
  impl_->read_lingering();
  impl_->flush_sinks();
  impl_->arm_timer();
}

void OutputHub::own_line(std::string_view line) { impl_->own_line(line); }

bool OutputHub::draws() const { return impl_->target(OutputStream::err).printer.draws(); }

void OutputHub::set_own_row(std::string row, bool urgent) {
  impl_->target(OutputStream::err).printer.set_own_row(std::move(row), urgent);
  impl_->flush_sinks();
  impl_->arm_timer();
}

void OutputHub::leave_rows() {
  for (Impl::Target* to : {&impl_->out, &impl_->err}) to->printer.leave_rows();
}

void OutputHub::pass_on(UniqueFd from, OutputStream kind, std::string_view begun,
                        std::function<void()> ended) {
  impl_->pass_on(std::move(from), kind, begun, std::move(ended));
}

TimePoint OutputHub::passed_at() const {
  const bool held_up = !impl_->out.waiting.empty() || !impl_->err.waiting.empty() ||
                       !impl_->waiting_for_files.empty();
  return held_up ? steady_now() : impl_->passed_at;
}

void OutputHub::flush(Duration limit, std::function<void()> done) {
  for (const auto& [slot, pair] : impl_->streams) {
    for (const auto& stream : pair) {
      if (stream && stream->reaped) impl_->end_lingering(*stream);
    }
  }
  for (const OutputStream kind : kOutputStreams) {
    impl_->show_merged(kind, impl_->merger(kind).take_all());
    impl_->target(kind).printer.end_bars();
    impl_->target(kind).printer.end_unfinished();
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

std::optional<TimePoint> OutputHub::said_at(int slot) const {
  const auto it = impl_->streams.find(slot);
  if (it == impl_->streams.end()) return std::nullopt;
  std::optional<TimePoint> latest;
  for (const auto& stream : it->second) {
    if (stream) latest = std::max(latest, stream->said);
  }
  return latest;
}

std::optional<TimePoint> OutputHub::threw_at(int slot) const {
  const auto it = impl_->streams.find(slot);
  const bool known = it != impl_->streams.end() && it->second[1];
  return known ? it->second[1]->traceback.begun() : std::nullopt;
}

std::optional<Traceback> OutputHub::traceback(int slot) const {
  return threw_at(slot) ? impl_->streams.find(slot)->second[1]->traceback.last() : std::nullopt;
}

void OutputHub::on_traceback(std::function<void()> begun) {
  impl_->on_traceback = std::move(begun);
}

void OutputHub::on_tail(OutputTails::Tell tell) { impl_->on_tail = std::move(tell); }

void OutputHub::ask_tail(int slot, Duration lasts, bool again) {
  impl_->tails.ask(steady_now(), slot, lasts, again);
  impl_->arm_tails();
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

bool OutputHub::shown_last(int rank, const std::vector<std::string>& lines) const {
  return impl_->target(OutputStream::err).printer.shown_last(rank, lines);
}

void OutputHub::close_stdin() { impl_->close_stdin(); }

StdinPump& OutputHub::stdin_pump() { return impl_->stdin_pump; }

}  // namespace dlaunch
