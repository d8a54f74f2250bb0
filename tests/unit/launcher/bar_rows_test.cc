// The final rows of progress bars, and the rows that a terminal would show meanwhile.
#include "launcher/output/bar_rows.h"

#include <utility>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {
using Texts = std::vector<std::string>;

struct Rows {
  BarRows bars;
  Texts seen;
  BarRows::Emit emit() {
    return [this](std::string_view line, bool continued) {
      seen.push_back(std::string(line) + (continued ? "+" : ""));
    };
  }
  // In pieces: what comes later must not change what is final.
  Texts feed(std::string_view text, TimePoint now = kStart, std::size_t piece = 1000) {
    for (std::size_t at = 0; at < text.size(); at += piece) {
      bars.feed(now, text.substr(at, piece), emit());
    }
    return std::exchange(seen, {});
  }
  Texts settle(TimePoint now) {
    bars.settle(now, emit());
    return std::exchange(seen, {});
  }
  Texts end() {
    bars.finish(emit());
    return std::exchange(seen, {});
  }
};

// As tqdm draws the bar at this position.
std::string at_position(int position, const std::string& text) {
  std::string bytes(static_cast<std::size_t>(position), '\n');
  bytes += "\r" + text;
  for (int i = 0; i < position; ++i) bytes += "\x1b[A";
  return bytes;
}

}  // namespace

TEST_CASE("a bar is drawn until its line ends, and is final a little later") {
  Rows r;
  CHECK_FALSE(r.bars.active());
  CHECK(r.feed("\r 1%\r 2%").empty());
  CHECK(r.bars.rows() == Texts{" 2%"});
  CHECK(r.bars.deadline() == std::nullopt);
  CHECK(r.feed("\r100%\n").empty());
  CHECK(r.bars.rows() == Texts{"100%"});
  CHECK(r.bars.deadline() == kStart + BarRows::kSettle);
  CHECK(r.settle(kStart + BarRows::kSettle - 1ms).empty());
  CHECK(r.settle(kStart + BarRows::kSettle) == Texts{"100%"});
  CHECK(r.bars.rows().empty());
  CHECK_FALSE(r.bars.active());
  CHECK(r.end().empty());
}

TEST_CASE("an ordinary line makes the bars above it final at once") {
  Rows r;
  CHECK(r.feed("\r 1%\r100%\nnext\n") == Texts{"100%", "next"});
  CHECK(r.bars.rows().empty());
  CHECK_FALSE(r.bars.active());
}

TEST_CASE("nested bars of tqdm are drawn as two rows, and each ends once") {
  for (const std::size_t piece : {1, 2, 3, 5, 1000}) {
    CAPTURE(piece);
    Rows r;
    Texts got;
    const auto feed = [&](const std::string& text, TimePoint now = kStart) {
      const Texts more = r.feed(text, now, piece);
      got.insert(got.end(), more.begin(), more.end());
    };
    feed(at_position(0, "outer 0/2") + at_position(1, "inner 0/9"));
    CHECK(r.bars.rows() == Texts{"outer 0/2", "inner 0/9"});
    feed(at_position(1, "inner 9/9"), kStart + 1s);
    CHECK(r.settle(kStart + 9s).empty());  // the cursor is in the first row again
    feed(at_position(1, "         ") + at_position(0, "outer 1/2"));
    CHECK(r.bars.rows() == Texts{"outer 1/2"});
    feed(at_position(1, "inner 3/9") + at_position(1, "         ") + "\router 2/2\n");
    CHECK(got.empty());
    CHECK(r.end() == Texts{"outer 2/2"});
  }
}

TEST_CASE("an inner bar that stays is final above the outer one") {
  Rows r;
  r.feed(at_position(0, "outer 0/2") + at_position(1, "inner 5/9"));
  CHECK(r.feed("\rinner 9/9\n").empty());
  CHECK(r.settle(kStart + 1s) == Texts{"inner 9/9"});
  r.feed("\router 1/2");
  CHECK(r.bars.rows() == Texts{"outer 1/2"});
  r.feed(at_position(1, "inner 4/9"));
  CHECK(r.end() == Texts{"outer 1/2", "inner 4/9"});  // it was killed there
}

TEST_CASE("the only bar may be drawn below another process's") {
  Rows r;
  r.feed("\rinner 1/9\x1b[A" + at_position(1, "inner 2/9"));
  CHECK(r.bars.rows() == Texts{"inner 2/9"});
  r.feed(at_position(1, "inner 8/9") + "\rinner 9/9\n");
  CHECK(r.settle(kStart + 1s) == Texts{"inner 9/9"});
  CHECK(r.end().empty());
}

TEST_CASE("lines that tqdm.write puts above bars come through") {
  Rows r;
  r.feed(at_position(0, "outer 1/2") + at_position(1, "inner 1/9"));
  r.feed("\r         \r" + at_position(1, "         \r") + "a word\n" +
         at_position(0, "outer 1/2") + at_position(1, "inner 1/9"));
  CHECK(r.bars.rows() == Texts{"a word", "outer 1/2", "inner 1/9"});
  CHECK(r.settle(kStart + BarRows::kSettle) == Texts{"a word"});
  CHECK(r.bars.rows() == Texts{"outer 1/2", "inner 1/9"});
}

TEST_CASE("lines that end with a carriage return and a newline are not bars") {
  for (const std::size_t piece : {1, 1000}) {
    Rows r;
    CHECK(r.feed("one\r\n\r\ntwo\r\n", kStart, piece) == Texts{"one", "", "two"});
    CHECK_FALSE(r.bars.active());
    CHECK(r.end().empty());
  }
}

TEST_CASE("states that were given are not given again at the end") {
  Rows r;
  r.feed("\r 1%\r 2%");
  CHECK(r.bars.has_news());
  r.bars.give_states(r.emit());
  CHECK(std::exchange(r.seen, {}) == Texts{" 2%"});
  CHECK_FALSE(r.bars.has_news());
  CHECK(r.feed("\nnext\n") == Texts{"next"});
  r.feed("\r 1%\r 2%");  // another bar
  CHECK(r.end() == Texts{" 2%"});
}

TEST_CASE("rows and their text are bounded, however high the cursor goes") {
  Rows r;
  r.feed("\rx\x1b[999999999A\ry");
  for (int i = 0; i < 1000; ++i) r.feed("\n\rrow " + std::to_string(i));
  CHECK(r.bars.rows().size() <= BarRows::kMaxRows);
  Rows long_one;
  const auto got = long_one.feed("\r" + std::string(3 * BarRows::kMaxText, 'x'), kStart, 100000);
  REQUIRE(got.size() == 2);
  CHECK(got[0].size() == BarRows::kMaxText + 1);
  CHECK(got[0].back() == '+');
}
