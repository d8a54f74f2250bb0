// Cutting a stream into lines, and joining equal lines of several ranks.
#include <random>

#include <doctest/doctest.h>

#include "launcher/line_merger.h"
#include "launcher/line_splitter.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart(1000s);
using Lines = std::vector<std::string>;

struct Splitter {
  LineSplitter lines;
  Lines seen;
  auto emit() {
    return [this](std::string_view line, bool continued) {
      seen.push_back(std::string(line) + (continued ? "+" : ""));
    };
  }
  void feed(std::string_view bytes, TimePoint now = kStart) { lines.feed(now, bytes, emit()); }
  Lines end() {
    lines.finish(emit());
    return std::exchange(seen, {});
  }
};

}  // namespace

TEST_CASE("lines come whole, however the stream is cut") {
  const std::string text = "one\n\ntwo two\r\nthree\nlast";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    CAPTURE(piece);
    Splitter s;
    for (std::size_t at = 0; at < text.size(); at += piece) s.feed(text.substr(at, piece));
    const Lines got = s.end();
    // A carriage return at the end of a piece may be a progress bar's: its state is shown, once.
    CHECK(got == Lines{"one", "", "two two", "three", "last"});
  }
}

TEST_CASE("a line of more than a MiB comes in marked pieces and loses nothing") {
  const std::string text(LineSplitter::kMaxLine * 2 + 10, 'x');
  for (const bool with_newline : {true, false}) {
    Splitter s;
    for (std::size_t at = 0; at < text.size(); at += 70001)
      s.feed(std::string_view(text).substr(at, 70001));
    if (with_newline) s.feed("\n");
    const Lines got = s.end();
    REQUIRE(got.size() == 3);
    CHECK(got[0].size() == LineSplitter::kMaxLine + 1);
    CHECK(got[0].back() == '+');
    CHECK(got[2].size() == 10);
  }
}

TEST_CASE("a progress bar is shown once a second and at its end") {
  Splitter s;
  for (int i = 0; i < 1000; ++i) {
    const auto now = kStart + i * 10ms;
    s.feed("\r" + std::to_string(i) + " of 1000", now);
    if (s.lines.deadline() && *s.lines.deadline() <= now) s.lines.show_progress(now, s.emit());
  }
  s.feed("\n", kStart + 10s);
  const Lines got = s.end();
  CHECK(got.size() >= 10);
  CHECK(got.size() <= 12);
  CHECK(got.back() == "999 of 1000");
}

TEST_CASE("equal lines of all ranks become one, between lines that differ, too") {
  LineMerger merger;
  for (int r = 0; r < 4; ++r) merger.join(r);
  for (int r = 0; r < 4; ++r) {
    merger.add(kStart, r, "loading");
    merger.add(kStart, r, "rank " + std::to_string(r));
    merger.add(kStart, r, "ready");
  }
  auto lines = merger.take(kStart);
  REQUIRE(lines.size() == 1);  // the next one waits for others to say the same
  CHECK(lines[0].ranks == RankSet{0, 1, 2, 3});
  CHECK(merger.deadline() == kStart + LineMerger::kWindow);
  lines = merger.take(kStart + LineMerger::kWindow);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].text == "rank 0");
  CHECK(lines[3].text == "rank 3");
  CHECK(lines[4].ranks.size() == 4);
}

TEST_CASE("a rank that has left is not waited for") {
  LineMerger merger;
  merger.join(0);
  merger.join(1);
  merger.add(kStart, 0, "x");
  CHECK(merger.take(kStart).empty());
  merger.leave(1);
  CHECK(merger.take(kStart).size() == 1);
}

TEST_CASE("merging keeps each rank's order and loses and invents nothing") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    LineMerger merger;
    const int ranks = 1 + static_cast<int>(random() % 5);
    for (int r = 0; r < ranks; ++r) merger.join(r);
    std::vector<Lines> said(static_cast<std::size_t>(ranks)), shown(said);
    auto now = kStart;
    auto keep = [&](const std::vector<LineMerger::Merged>& lines) {
      for (const auto& line : lines) {
        for (const int r : line.ranks) shown[static_cast<std::size_t>(r)].push_back(line.text);
      }
    };
    for (int i = 0; i < 60; ++i) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const std::string line(1, static_cast<char>('a' + random() % 3));
      said[static_cast<std::size_t>(rank)].push_back(line);
      merger.add(now, rank, line);
      if (random() % 4 == 0) now += std::chrono::milliseconds(random() % 80);
      if (random() % 3 == 0) keep(merger.take(now));
    }
    keep(merger.take_all());
    CHECK(shown == said);
    CHECK_FALSE(merger.deadline());
  }
}
