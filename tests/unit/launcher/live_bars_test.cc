// The rows of progress bars at the bottom of a terminal, on a screen that behaves like one.
#include "launcher/output/live_bars.h"

#include <doctest/doctest.h>

#include "tests/unit/launcher/screen.h"
#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {
using Lines = std::vector<std::string>;

struct Terminal {
  explicit Terminal(bool all, LiveBars::Window size = {})
      : bars(all), window(size), screen(size.columns) {}
  void draw(TimePoint now) {
    screen.write(
        bars.draw(now, window, [](int rank) { return "[" + std::to_string(rank) + "] "; }));
  }
  void line(const std::string& text) { screen.write(bars.erase(window) + text + "\n"); }
  LiveBars bars;
  LiveBars::Window window;
  Screen screen;
};

}  // namespace

TEST_CASE("the bar of the first rank that has one is drawn in place below all lines") {
  Terminal t(false);
  t.bars.set({1, 1, OutputStream::err}, {"b 1%"});
  t.draw(kStart);
  CHECK(t.screen.rows() == Lines{"[1] b 1%"});
  t.bars.set({0, 0, OutputStream::err}, {"a 1%"});
  t.draw(kStart + 1s);
  CHECK(t.screen.rows() == Lines{"[0] a 1%"});
  t.line("[1] word");
  CHECK(t.screen.rows() == Lines{"[1] word", ""});
  t.draw(kStart + 1s);  // at once where it was taken away
  CHECK(t.screen.rows() == Lines{"[1] word", "[0] a 1%"});
  t.bars.set({1, 1, OutputStream::err}, {"b 50%"});
  CHECK(t.bars.deadline() == std::nullopt);  // it is not shown
  t.bars.set({0, 0, OutputStream::err}, {});
  t.draw(kStart + 2s);
  CHECK(t.screen.rows() == Lines{"[1] word", "[1] b 50%"});
  t.bars.set({1, 1, OutputStream::err}, {});
  t.draw(kStart + 3s);
  CHECK(t.screen.rows() == Lines{"[1] word", ""});
  CHECK(t.bars.deadline() == std::nullopt);
}

TEST_CASE("a bar that changes all the time is drawn ten times a second") {
  Terminal t(false);
  int drawn = 0;
  for (int i = 0; i < 1000; ++i) {
    t.bars.set({0, 0, OutputStream::err}, {std::to_string(i)});
    const auto now = kStart + i * 1ms;
    CHECK(t.bars.deadline().has_value());
    const auto bytes = t.bars.draw(now, t.window, [](int) { return ""; });
    drawn += bytes.empty() ? 0 : 1;
    t.screen.write(bytes);
  }
  CHECK(drawn == 10);
  t.draw(kStart + 1s);
  CHECK(t.screen.rows() == Lines{"[0] 999"});
}

TEST_CASE("all ranks' bars, and nested ones, stand below each other, shorter ones over longer") {
  Terminal t(true);
  t.bars.set({-1, 7, OutputStream::err}, {"spare"});
  t.bars.set({2, 2, OutputStream::err}, {"two, which is long"});
  t.bars.set({0, 0, OutputStream::err}, {"outer", "inner"});
  t.draw(kStart);
  CHECK(t.screen.rows() == Lines{"[0] outer", "[0] inner", "[2] two, which is long", "[-1] spare"});
  t.bars.set({2, 2, OutputStream::err}, {"2"});
  t.bars.set({0, 0, OutputStream::err}, {"outer"});
  t.draw(kStart + 1s);
  CHECK(t.screen.rows() == Lines{"[0] outer", "[2] 2", "[-1] spare"});
  t.line("word");
  t.draw(kStart + 2s);
  CHECK(t.screen.rows() == Lines{"word", "[0] outer", "[2] 2", "[-1] spare"});
}

TEST_CASE("rows are cut to the terminal, also one that the user makes narrower") {
  Terminal t(true, {20, 4});
  for (int rank = 0; rank < 5; ++rank)
    t.bars.set({rank, rank, OutputStream::err}, {"\x1b[31m" + std::string(99, '#')});
  t.draw(kStart);
  const std::string row = std::string(15, '#');
  CHECK(t.screen.rows() == Lines{"[0] " + row, "[1] " + row, "… 3 more progress b"});
}

TEST_CASE("lines that the user leaves with Enter are not erased") {
  Terminal t(false);
  t.bars.set({0, 0, OutputStream::err}, {"a 1%"});
  t.draw(kStart);
  t.screen.write("\n");  // the terminal's echo
  t.bars.leave();
  t.draw(kStart + 1ms);
  CHECK(t.screen.rows() == Lines{"[0] a 1%", "[0] a 1%"});
}

TEST_CASE("the job's own line stands where no bar is, and an urgent one replaces the bars") {
  Terminal t(false, {20, 4});
  t.bars.set_own("dlaunch: step 1 of very many", false);
  t.draw(kStart);
  CHECK(t.screen.rows() == Lines{"dlaunch: step 1 of"});
  t.line("word");
  t.draw(kStart + 1s);
  CHECK(t.screen.rows() == Lines{"word", "dlaunch: step 1 of"});
  t.bars.set({0, 0, OutputStream::err}, {"a 1%"});
  t.draw(kStart + 2s);
  CHECK(t.screen.rows() == Lines{"word", "[0] a 1%"});
  t.bars.set_own("dlaunch: step 2", false);
  t.draw(kStart + 3s);
  CHECK(t.screen.rows() == Lines{"word", "[0] a 1%"});
  t.bars.set_own("dlaunch: round 2", true);
  t.draw(kStart + 4s);
  CHECK(t.screen.rows() == Lines{"word", "dlaunch: round 2"});
  t.bars.set_own("", false);
  t.draw(kStart + 5s);
  CHECK(t.screen.rows() == Lines{"word", "[0] a 1%"});
  t.bars.set({0, 0, OutputStream::err}, {});
  t.draw(kStart + 6s);
  CHECK(t.screen.rows() == Lines{"word", ""});
  CHECK(t.bars.deadline() == std::nullopt);
}
