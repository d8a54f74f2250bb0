// What a worker draws with carriage returns: whole and in pieces it must end in the same lines,
// what is kept is bounded, and what is drawn of it stays within a terminal's row.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz.h"
#include "launcher/output/line_splitter.h"
#include "launcher/output/live_bars.h"
#include "launcher/output/terminal_text.h"

namespace {

struct Stream {
  dlaunch::LineSplitter lines;
  std::string seen;
  void feed(std::string_view bytes) {
    lines.feed(dlaunch::TimePoint(), bytes, [this](std::string_view line, bool continued) {
      seen.append(line).append(continued ? "+" : "\n");
    });
  }
  void finish() {
    lines.finish([this](std::string_view line, bool) { seen.append(line).append("\n"); });
  }
};

}  // namespace

static int fuzz_progress_bar(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  const std::string_view text = fuzz_text(data, size);
  constexpr LiveBars::Window kWindow{30, 8};
  Stream whole, pieces;
  LiveBars bars(true);
  whole.feed(text);
  for (std::size_t at = 0; at < text.size(); at += 3) {
    pieces.feed(text.substr(at, 3));
    auto rows = pieces.lines.bar();
    fuzz_check(rows.size() <= BarRows::kMaxRows);
    for (const auto& row : rows) fuzz_check(columns_of(fit_columns(row, 29)) <= 29);
    bars.set({0, 0, OutputStream::out}, std::move(rows));
    const auto drawn = bars.draw(TimePoint(), kWindow, [](int) { return "[0] "; });
    fuzz_check(static_cast<int>(std::count(drawn.begin(), drawn.end(), '\n')) < kWindow.rows);
    bars.erase(kWindow);
  }
  whole.finish();
  pieces.finish();
  fuzz_check(whole.seen == pieces.seen);
  fuzz_check(!whole.lines.deadline() && whole.lines.bar().empty());
  return 0;
}

static const FuzzTarget progress_bar_target("progress_bar", fuzz_progress_bar);
