// The parts of OutputHub: a stream for each pipe, two outputs of our own, and the steps between
// them. Only the files of OutputHub include it.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/steady_timer.hpp>

#include "launcher/output/file_writer.h"
#include "launcher/output/line_merger.h"
#include "launcher/output/output_hub.h"
#include "launcher/output/output_printer.h"
#include "launcher/output/output_sink.h"
#include "launcher/output/output_tail.h"
#include "launcher/output/own_descriptor.h"
#include "launcher/output/worker_stream.h"

namespace dlaunch {

struct OutputHub::Impl {
  static constexpr std::size_t kReadBytes = 256 << 10;

  Impl(asio::io_context& l, const Plan& p, OwnDescriptors own_fds);

  using StreamPtr = std::shared_ptr<WorkerStream>;

  // One of our own outputs, and the streams that wait for room in it, longest wait first. (epoll
  // would put those first whose workers write again soonest.)
  struct Target {
    Target(Impl& hub, int fd, const char* name)
        : sink(hub.loop, hub.files, fd, name,
               {[this, &hub] { hub.on_drained(*this); },
                [&hub](const Error& e) { hub.on_sink_failed(e); }}),
          printer(hub.plan, hub.local_ranks, sink) {}
    OutputSink sink;
    OutputPrinter printer;
    std::deque<StreamPtr> waiting;
  };

  Target& target(OutputStream kind) { return kind == OutputStream::err && !one_target ? err : out; }
  OutputSink& sink(OutputStream kind) { return target(kind).sink; }
  LineMerger& merger(OutputStream kind) { return mergers[static_cast<std::size_t>(kind)]; }
  StreamPtr& stream_of(int slot, OutputStream kind) {
    return streams[slot][static_cast<std::size_t>(kind)];
  }
  bool merges() const { return plan.output.mode == OutputMode::merged; }
  // Lines of spares are not merged.
  bool merges_lines_of(int rank) const { return merges() && rank >= 0; }

  // -- output_opening.cc: a worker's descriptors, and whether its output is shown
  Result<UniqueFd> open_stream(int round, int slot, int rank, OutputStream kind);
  Result<UniqueFd> open_stdin(int rank);
  Result<WorkerStdio> open_terminal(const std::string& path);
  bool shows(int rank, OutputStream kind) const;
  bool takes_stdin(int rank) const;
  void close_stdin();
  bool may_ask(int rank, OutputStream kind);
  BarPace pace_of(OutputStream kind) const;
  void rename(WorkerStream& stream, int rank);

  // -- output_reading.cc: input from pipes, and when not to read
  void arm(const StreamPtr& stream);
  void on_readable(const StreamPtr& stream);
  bool held_up(const WorkerStream& stream);
  void take_turn(const StreamPtr& stream);
  std::size_t read_some(WorkerStream& stream, std::size_t most);
  void take(WorkerStream& stream, std::string_view bytes);
  void tell_traceback();
  void read_held(WorkerStream& stream);
  void end_stream(const StreamPtr& stream);
  void show_rest(WorkerStream& stream);
  void read_lingering();
  void end_lingering(WorkerStream& stream);
  void pass_on(UniqueFd from, OutputStream kind, std::string_view begun,
               std::function<void()> ended);
  void end_passing(const StreamPtr& stream);
  void arm_tails();
  void on_drained(Target& to);
  void on_files_drained();

  // -- output_showing.cc: lines, in which form and when
  void show(const WorkerStream& stream, std::string_view line, bool continued);
  void show_what_is_due(WorkerStream& stream);
  bool has_first_bar(const WorkerStream& stream) const;
  void follow_bar(WorkerStream& stream);
  void forget_bar(WorkerStream& stream);
  void show_merged(OutputStream kind, const std::vector<LineMerger::Merged>& lines);
  void flush_sinks();
  void on_sink_failed(const Error& error);
  void own_line(std::string_view line);
  void arm_timer();
  void on_timer();
  bool all_written() const;
  void check_flushed();

  asio::io_context& loop;
  const Plan& plan;
  LocalRanks local_ranks;  // of this host's workers
  const OwnDescriptors own;
  FileWriter files;
  std::deque<StreamPtr> waiting_for_files;  // whose log files have no room
  const bool one_target;  // stdout and stderr are the same: one queue keeps lines whole
  Target out, err;
  asio::steady_timer timer, flush_timer, traceback_timer, tails_timer;
  StdinPump stdin_pump;
  std::unique_ptr<char[]> read_buffer;              // one for all streams
  std::map<int, std::array<StreamPtr, 2>> streams;  // by slot
  // The stderr of a slot's ended worker.
  struct LastWords {
    StreamTail tail;
    std::optional<Traceback> traceback;
    std::string log;
  };
  std::map<int, LastWords> last_words;
  std::array<LineMerger, 2> mergers;
  OutputTails tails;
  std::optional<TimePoint> tails_due;  // of the timer
  TimePoint read_at{};                 // when this turn's lines were read
  TimePoint passed_at{};               // when pass_on() last read something
  std::function<void()> on_flushed, on_traceback;
  OutputTails::Tell on_tail;
  bool traceback_waits = false;  // to be reported
  TimePoint traceback_next{};    // the earliest time for that
};

}  // namespace dlaunch
