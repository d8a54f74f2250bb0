#include "launcher/output_hub.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <map>

#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "launcher/line_merger.h"
#include "launcher/output_sink.h"
#include "launcher/stdin_pump.h"
#include "launcher/worker_stream.h"

namespace dlaunch {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::size_t kDefaultPipe = 64 << 10;
constexpr int kReadsPerTurn = 4;  // then the other workers' turn
constexpr const char* kColors[] = {"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m",
                                   "\x1b[34m", "\x1b[31m", "\x1b[96m", "\x1b[93m"};
constexpr std::string_view kContinued = " …";

bool has(StreamSet set, bool error) {
  return set == StreamSet::both || set == (error ? StreamSet::err : StreamSet::out);
}

// "2026-11-21 14:03:07.123 ": wall clock, because people compare it with other logs.
std::string wall_clock() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  tm local{};
  ::localtime_r(&now.tv_sec, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03} ", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     now.tv_usec / 1000);
}

struct Pipe {
  UniqueFd reading, writing;
};

Result<Pipe> open_pipe(std::size_t bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe for a worker's output", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  // As a favour: smaller ones work, too.
  if (bytes > kDefaultPipe) ::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(bytes));
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

struct OutputHub::Impl {
  Impl(asio::io_context& l, const Plan& p)
      : loop(l),
        plan(p),
        out(l, STDOUT_FILENO, [this] { on_drained(); }),
        err(l, STDERR_FILENO, [this] { on_drained(); }),
        one_target(same_target(STDOUT_FILENO, STDERR_FILENO)),
        timer(l),
        flush_timer(l),
        stdin_pump(l, STDIN_FILENO),
        read_buffer(std::make_unique<char[]>(kReadBytes)) {}

  using StreamPtr = std::unique_ptr<WorkerStream>;

  OutputSink& sink(bool error) { return error && !one_target ? err : out; }
  LineMerger& merger(bool error) { return mergers[error ? 1 : 0]; }
  std::array<StreamPtr, 2>& streams_of(int rank) { return streams[rank]; }

  Result<UniqueFd> open_stream(int round, int rank, bool error);
  Result<void> open_log(WorkerStream& stream, int round);
  Result<UniqueFd> open_stdin(int rank);
  bool shows(int rank, bool error) const;
  void arm(WorkerStream& stream);
  void on_readable(WorkerStream& stream);
  void drain(WorkerStream& stream);
  void take(WorkerStream& stream, std::string_view bytes);
  void write_log(WorkerStream& stream, std::string_view bytes);
  void show(int rank, bool error, std::string_view line, bool continued);
  void show_merged(bool error, const std::vector<LineMerger::Merged>& lines);
  void put_line(OutputSink& to, const std::string& prefix, std::string_view line, bool continued);
  const std::string& prefix_of(int rank);
  std::string make_prefix(const std::string& ranks, int color) const;
  void flush_sinks();
  void on_drained();
  void arm_timer();
  void on_timer();
  void check_flushed();

  asio::io_context& loop;
  const Plan& plan;
  OutputSink out, err;
  const bool one_target;  // stdout and stderr are the same: one queue keeps lines whole
  asio::steady_timer timer, flush_timer;
  StdinPump stdin_pump;
  std::unique_ptr<char[]> read_buffer;
  std::map<int, std::array<StreamPtr, 2>> streams;
  std::map<int, std::string> tails;  // of streams that have ended
  std::vector<std::string> prefixes;
  std::array<LineMerger, 2> mergers;
  std::string turn_time;  // the time stamp of what this turn reads
  std::function<void()> on_flushed;
};

// -- Opening
// ---------------------------------------------------------------------------------------

bool OutputHub::Impl::shows(int rank, bool error) const {
  const auto& o = plan.output;
  if (o.mode == OutputMode::files || o.mode == OutputMode::none) return false;
  if (o.only_ranks && !o.only_ranks->contains(rank)) return false;
  return o.log_dir.empty() || has(o.tee, error);
}

Result<void> OutputHub::Impl::open_log(WorkerStream& stream, int round) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::path(plan.output.log_dir) / std::to_string(round) / std::to_string(stream.rank);
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) return errno_error("--log-dir: make " + folder.string(), ec.value());
  stream.log_path = (folder / (stream.error ? "stderr" : "stdout")).string();
  stream.log.reset(::open(stream.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!stream.log) return errno_error("--log-dir: write " + stream.log_path, errno);
  return {};
}

Result<UniqueFd> OutputHub::Impl::open_stream(int round, int rank, bool error) {
  if (plan.output.mode == OutputMode::raw) {
    const int own = error ? STDERR_FILENO : STDOUT_FILENO;
    UniqueFd copy(::fcntl(own, F_DUPFD_CLOEXEC, 3));
    if (!copy) return errno_error("copy our own output for a worker", errno);
    return copy;
  }
  auto stream = std::make_unique<WorkerStream>(loop, rank, error);
  stream->shown = shows(rank, error);
  if (!plan.output.log_dir.empty()) {
    if (auto ok = open_log(*stream, round); !ok) return ok.error();
  }
  // The kernel bounds what one user's pipes may hold together: large ones for few workers only.
  const std::size_t share = (std::size_t{32} << 20) / (2 * static_cast<std::size_t>(plan.nproc));
  auto pipe = open_pipe(std::clamp<std::size_t>(share, kDefaultPipe, 1 << 20));
  if (!pipe) return pipe.error();
  asio::error_code ec;
  stream->pipe.assign(pipe->reading.release(), ec);
  if (ec) return errno_error("watch a worker's output", ec.value());
  if (stream->shown && plan.output.mode == OutputMode::merged) merger(error).join(rank);
  auto& slot = streams_of(rank)[error ? 1 : 0];
  slot = std::move(stream);
  arm(*slot);
  return std::move(pipe->writing);
}

Result<UniqueFd> OutputHub::Impl::open_stdin(int rank) {
  const bool takes = plan.stdin_to == StdinPlan::all ||
                     (plan.stdin_to == StdinPlan::one_rank && plan.stdin_rank == rank);
  if (takes) return stdin_pump.add_taker();
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) return errno_error("open /dev/null", errno);
  return null;
}

// -- Reading
// ---------------------------------------------------------------------------------------

void OutputHub::Impl::arm(WorkerStream& stream) {
  stream.pipe.async_wait(asio::posix::stream_descriptor::wait_read,
                         [this, s = &stream](asio::error_code ec) {
                           if (!ec) on_readable(*s);
                         });
}

void OutputHub::Impl::on_readable(WorkerStream& stream) {
  if (stream.shown && sink(stream.error).full()) {
    stream.paused = true;  // back-pressure: the worker's pipe fills, and its writes block
    return;
  }
  turn_time.clear();
  for (int i = 0; i < kReadsPerTurn; ++i) {
    const ssize_t n = ::read(stream.pipe.native_handle(), read_buffer.get(), kReadBytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    if (n == 0) {
      flush_sinks();
      return;  // every writer has closed it; worker_ended() does the rest
    }
    take(stream, {read_buffer.get(), static_cast<std::size_t>(n)});
    if (static_cast<std::size_t>(n) < kReadBytes / 4) break;  // probably empty
  }
  flush_sinks();
  arm_timer();
  arm(stream);
}

// What a dead worker's pipe still holds; a grandchild that keeps writing is not waited for.
void OutputHub::Impl::drain(WorkerStream& stream) {
  turn_time.clear();
  for (int i = 0; i < 64; ++i) {
    const ssize_t n = ::read(stream.pipe.native_handle(), read_buffer.get(), kReadBytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    take(stream, {read_buffer.get(), static_cast<std::size_t>(n)});
  }
  if (stream.shown) {
    stream.lines.finish([&](std::string_view line, bool continued) {
      show(stream.rank, stream.error, line, continued);
    });
  }
}

void OutputHub::Impl::take(WorkerStream& stream, std::string_view bytes) {
  if (stream.error) stream.keep_tail(bytes);
  if (stream.log) write_log(stream, bytes);
  if (!stream.shown) return;
  stream.lines.feed(steady_now(), bytes, [&](std::string_view line, bool continued) {
    show(stream.rank, stream.error, line, continued);
  });
}

void OutputHub::Impl::write_log(WorkerStream& stream, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(stream.log.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      log_warn("{}; the job goes on without this file",
               errno_error("write " + stream.log_path, errno).what);
      return stream.log.reset();
    }
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// -- Showing
// ---------------------------------------------------------------------------------------

std::string OutputHub::Impl::make_prefix(const std::string& ranks, int color) const {
  const std::string text = plan.output.host_prefix ? fmt::format("[{}:{}]", plan.host, ranks)
                                                   : fmt::format("[{}]", ranks);
  if (!plan.output.color) return text + " ";
  return fmt::format("{}{}\x1b[0m ", kColors[static_cast<std::size_t>(color) % std::size(kColors)],
                     text);
}

const std::string& OutputHub::Impl::prefix_of(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  if (prefixes.size() <= index) prefixes.resize(index + 1);
  if (prefixes[index].empty()) prefixes[index] = make_prefix(std::to_string(rank), rank);
  return prefixes[index];
}

void OutputHub::Impl::show(int rank, bool error, std::string_view line, bool continued) {
  if (plan.output.mode == OutputMode::merged) {
    merger(error).add(steady_now(), rank, line);
    return;
  }
  put_line(sink(error), prefix_of(rank), line, continued);
}

void OutputHub::Impl::put_line(OutputSink& to, const std::string& prefix, std::string_view line,
                               bool continued) {
  if (to.gone()) return;
  if (plan.output.timestamps) {
    if (turn_time.empty()) turn_time = wall_clock();
    to.append(turn_time);
  }
  to.append(prefix);
  to.append(line);
  if (continued) to.append(kContinued);
  to.append('\n');
}

void OutputHub::Impl::show_merged(bool error, const std::vector<LineMerger::Merged>& lines) {
  for (const auto& line : lines) {
    const std::string prefix = make_prefix(format_rank_set(line.ranks), *line.ranks.begin());
    put_line(sink(error), prefix, line.text, false);
  }
}

void OutputHub::Impl::flush_sinks() {
  if (plan.output.mode == OutputMode::merged) {
    const auto now = steady_now();
    for (const bool error : {false, true}) show_merged(error, merger(error).take(now));
  }
  out.flush();
  if (!one_target) err.flush();
  if (on_flushed) check_flushed();
}

void OutputHub::Impl::on_drained() {
  for (auto& [rank, pair] : streams) {
    for (auto& stream : pair) {
      if (stream && stream->paused && !sink(stream->error).full()) {
        stream->paused = false;
        arm(*stream);
      }
    }
  }
  if (on_flushed) check_flushed();
}

// -- Time: progress bars and lines held back to be merged
// ------------------------------------------

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
  const auto now = steady_now();
  turn_time.clear();
  timer.expires_at(TimePoint::min());
  for (auto& [rank, pair] : streams) {
    for (auto& stream : pair) {
      if (!stream || stream->lines.deadline().value_or(kNever) > now) continue;
      stream->lines.show_progress(now, [&](std::string_view line, bool continued) {
        show(stream->rank, stream->error, line, continued);
      });
    }
  }
  flush_sinks();
  arm_timer();
}

void OutputHub::Impl::check_flushed() {
  const bool done = (out.empty() || out.gone()) && (one_target || err.empty() || err.gone());
  if (!done) return;
  flush_timer.cancel();
  asio::post(loop, std::exchange(on_flushed, nullptr));
}

// -- The public face
// -------------------------------------------------------------------------------

OutputHub::OutputHub(asio::io_context& loop, const Plan& plan)
    : impl_(std::make_unique<Impl>(loop, plan)) {}
OutputHub::~OutputHub() = default;

Result<OutputHub::WorkerStdio> OutputHub::open_worker(int round, int rank) {
  impl_->tails.erase(rank);
  WorkerStdio stdio;
  auto in = impl_->open_stdin(rank);
  if (!in) return in.error();
  auto out = impl_->open_stream(round, rank, false);
  if (!out) return out.error();
  auto err = impl_->open_stream(round, rank, true);
  if (!err) return err.error();
  return WorkerStdio{std::move(*in), std::move(*out), std::move(*err)};
}

void OutputHub::worker_ended(int rank) {
  const auto it = impl_->streams.find(rank);
  if (it == impl_->streams.end()) return;
  for (auto& stream : it->second) {
    if (!stream) continue;
    impl_->drain(*stream);
    if (stream->error) impl_->tails[rank] = std::move(stream->tail);
    if (impl_->plan.output.mode == OutputMode::merged) impl_->merger(stream->error).leave(rank);
  }
  impl_->streams.erase(it);
  impl_->flush_sinks();
  impl_->arm_timer();
}

void OutputHub::own_line(std::string_view line) {
  OutputSink& to = impl_->sink(true);
  to.append(line);
  to.append('\n');
  to.flush();
}

void OutputHub::flush(Duration limit, std::function<void()> done) {
  for (const bool error : {false, true}) {
    impl_->show_merged(error, impl_->merger(error).take_all());
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

std::vector<std::string> OutputHub::stderr_tail(int rank, std::size_t lines) const {
  const auto it = impl_->tails.find(rank);
  if (it == impl_->tails.end()) return {};
  std::vector<std::string> found;
  LineSplitter splitter;
  auto keep = [&](std::string_view line, bool) { found.emplace_back(line); };
  splitter.feed(TimePoint::min(), it->second, keep);
  splitter.finish(keep);
  if (found.size() > lines) found.erase(found.begin(), found.end() - static_cast<long>(lines));
  return found;
}

void OutputHub::close_stdin() { impl_->stdin_pump.close(); }

}  // namespace dlaunch
