#include "launcher/output/output_printer.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>

#include <fmt/format.h>

namespace dlaunch {
namespace {

constexpr const char* kColors[] = {"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m",
                                   "\x1b[34m", "\x1b[31m", "\x1b[96m", "\x1b[93m"};
constexpr const char* kPlain = "\x1b[0m";
constexpr Duration kLookForForeground = std::chrono::seconds(1);

// Wall clock, because people compare it with other logs.
std::string wall_clock(TimePoint at) {
  using namespace std::chrono;
  const auto wall = system_clock::now() - duration_cast<system_clock::duration>(steady_now() - at);
  const auto ms = duration_cast<milliseconds>(wall.time_since_epoch()).count();
  const std::time_t seconds = ms / 1000;
  tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03} ", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     ms % 1000);
}

}  // namespace

OutputPrinter::OutputPrinter(const Plan& plan, const LocalRanks& local_ranks, OutputSink& sink)
    : whole_(plan),
      plan_(plan.output),
      local_ranks_(local_ranks),
      host_(plan.output.host_prefix ? plan.host + ":" : ""),
      sink_(sink),
      color_(plan.output.color && (sink.is_terminal() || plan.output.passed_on)),
      draws_(sink.is_terminal() && plan.output.cursor),
      bars_(plan_.bars == BarMode::all) {}

std::string OutputPrinter::make_prefix(const RankSet& ranks) const {
  const int first = *ranks.begin();
  const bool own = plan_.prefix.empty();
  const std::string text = own ? "[" + host_ + (first < 0 ? "spare" : format_rank_set(ranks)) + "]"
                               : line_prefix(whole_, ranks, local_ranks_);
  const char* const behind = own ? " " : "";
  if (!color_) return text + behind;
  const auto color = static_cast<std::size_t>(std::max(first, 0)) % std::size(kColors);
  return kColors[color] + text + kPlain + behind;
}

const std::string& OutputPrinter::prefix_of(int rank) {
  const auto index = static_cast<std::size_t>(rank + 1);
  if (prefixes_.size() <= index) prefixes_.resize(index + 1);
  if (prefixes_[index].empty()) {
    prefixes_[index] = make_prefix({rank});
  }
  return prefixes_[index];
}

void OutputPrinter::print(int rank, TimePoint read_at, std::string_view line, bool continued) {
  if (sink_.gone()) return;
  remember({rank}, line, open_ != rank && !continued);
  if (open_ == rank) {
    sink_.append(line);
    open_.reset();
  } else {
    put(prefix_of(rank), read_at, line);
  }
  end_line(line, continued);
}

void OutputPrinter::print(const RankSet& ranks, TimePoint read_at, std::string_view line) {
  if (sink_.gone()) return;
  remember(ranks, line, true);
  put(make_prefix(ranks), read_at, line);
  end_line(line, false);
}

void OutputPrinter::print_unfinished(int rank, TimePoint read_at, std::string_view text) {
  if (sink_.gone()) return;
  if (open_ == rank) {
    sink_.append(text);
  } else {
    put(prefix_of(rank), read_at, text);
    open_ = rank;
  }
}

void OutputPrinter::make_way() {
  hide_bars();
  end_unfinished();
  shown_.clear();
}

// -- Progress bars

std::string OutputPrinter::live_prefix(TimePoint now, int rank) {
  return (plan_.timestamps ? time_stamp(now) : "") + prefix_of(rank);
}

void OutputPrinter::draw_bars(TimePoint now) {
  if (!bars_due()) return;
  if (!sink_.is_foreground()) return bars_.put_off(deadline_after(now, kLookForForeground));
  sink_.append(bars_.draw(now, sink_.window(), [&](int rank) { return live_prefix(now, rank); }));
}

// Draws no bars below a question, nor while the terminal is behind.
std::optional<TimePoint> OutputPrinter::bars_due() const {
  const bool possible = draws_ && !open_ && !sink_.gone() && !sink_.full();
  return possible ? bars_.deadline() : std::nullopt;
}

void OutputPrinter::hide_bars() {
  if (draws_) sink_.append(bars_.erase(sink_.window()));
}

void OutputPrinter::end_bars() {
  hide_bars();
  draws_ = false;
}

void OutputPrinter::typed() {
  bars_.leave();
  open_.reset();
  shown_.clear();
}

// whole: the line is complete, and shown unchanged.
void OutputPrinter::remember(const RankSet& ranks, std::string_view line, bool whole) {
  if (!sink_.is_terminal()) return;
  if (!whole) return shown_.clear();
  if (shown_.size() == kRemembered) shown_.pop_front();
  shown_.push_back({ranks, std::string(line)});
}

bool OutputPrinter::shown_last(int rank, const std::vector<std::string>& lines) const {
  if (sink_.gone() || lines.empty() || lines.size() > shown_.size()) return false;
  return std::equal(lines.rbegin(), lines.rend(), shown_.rbegin(),
                    [=](const std::string& line, const Shown& shown) {
                      return shown.line == line && shown.ranks.contains(rank);
                    });
}

void OutputPrinter::end_unfinished() {
  if (!open_) return;
  if (color_) sink_.append(kPlain);
  sink_.append('\n');
  open_.reset();
}

const std::string& OutputPrinter::time_stamp(TimePoint read_at) {
  if (stamp_.empty() || read_at != stamped_) stamp_ = wall_clock(read_at);
  stamped_ = read_at;
  return stamp_;
}

void OutputPrinter::put(const std::string& prefix, TimePoint read_at, std::string_view line) {
  hide_bars();
  end_unfinished();
  if (plan_.timestamps) sink_.append(time_stamp(read_at));
  sink_.append(prefix);
  sink_.append(line);
}

void OutputPrinter::end_line(std::string_view line, bool continued) {
  if (continued) sink_.append(kContinuedMark);
  // A worker's colour must not run on into other output.
  if (color_ && line.find('\x1b') != std::string_view::npos) sink_.append(kPlain);
  sink_.append('\n');
}

}  // namespace dlaunch
