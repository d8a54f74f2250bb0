// Cutting a stream into the lines that are shown.
#include "launcher/output/line_splitter.h"

#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {
using Lines = std::vector<std::string>;

// Continued pieces end in "+".
struct Splitter {
  LineSplitter lines;
  Lines seen;
  auto emit() {
    return [this](std::string_view line, bool continued) {
      seen.push_back(std::string(line) + (continued ? "+" : ""));
    };
  }
  Lines feed(std::string_view bytes, TimePoint now = kStart) {
    lines.feed(now, bytes, emit());
    return std::exchange(seen, {});
  }
  Lines end() {
    lines.finish(emit());
    return std::exchange(seen, {});
  }
};

}  // namespace

TEST_CASE("lines come whole, however the stream is cut") {
  const std::string text = "one\n\ntwo two\r\n\r\nthree\nlast";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    CAPTURE(piece);
    Splitter s;
    Lines got;
    auto add = [&](const Lines& lines) { got.insert(got.end(), lines.begin(), lines.end()); };
    for (std::size_t at = 0; at < text.size(); at += piece) add(s.feed(text.substr(at, piece)));
    add(s.end());
    CHECK(got == Lines{"one", "", "two two", "", "three", "last"});
  }
}

TEST_CASE("random lines in random pieces come back byte for byte") {
  for (unsigned seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::string text;
    for (int i = 0; i < 40; ++i) {
      for (auto n = random() % 20; n > 0; --n) text += static_cast<char>(random() % 256);
      text += '\n';
    }
    std::erase(text, '\r');
    Splitter s;
    std::string back;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + random() % 50;
      for (const auto& line : s.feed(std::string_view(text).substr(at, n))) back += line + '\n';
      at += n;
    }
    CHECK(back == text);
    CHECK(s.end().empty());
  }
}

TEST_CASE("a line of more than a MiB comes in marked pieces and loses nothing") {
  const std::string text(LineSplitter::kMaxLine * 2 + 10, 'x');
  for (const bool with_newline : {true, false}) {
    Splitter s;
    Lines got;
    auto add = [&](const Lines& lines) { got.insert(got.end(), lines.begin(), lines.end()); };
    for (std::size_t at = 0; at < text.size(); at += 70001)
      add(s.feed(std::string_view(text).substr(at, 70001)));
    if (with_newline) add(s.feed("\n"));
    add(s.end());
    REQUIRE(got.size() == 3);
    CHECK(got[0].size() == LineSplitter::kMaxLine + 1);
    CHECK(got[0].back() == '+');
    CHECK(got[1].back() == '+');
    CHECK(got[2] == std::string(10, 'x'));
  }
  Splitter s;
  const std::string whole(LineSplitter::kMaxLine, 'x');
  CHECK(s.feed(whole + "\n") == Lines{whole});
}

TEST_CASE("a long line is not cut within a UTF-8 character") {
  Splitter s;
  std::string text(LineSplitter::kMaxLine - 1, 'x');
  text += "\xe2\x82\xac and more";  // the euro sign lies across the limit
  const Lines got = s.feed(text + "\n");
  REQUIRE(got.size() == 2);
  CHECK(got[0].size() == LineSplitter::kMaxLine - 1 + 1);
  CHECK(got[1] == "\xe2\x82\xac and more");
}

TEST_CASE(
    "a progress bar is shown once a second where that is its pace, and its last state always") {
  Splitter s;
  s.lines.set_pace({Duration::zero(), 1s});
  Lines got;
  auto add = [&](const Lines& lines) { got.insert(got.end(), lines.begin(), lines.end()); };
  for (int i = 0; i < 1000; ++i) {
    const auto now = kStart + i * 10ms;
    if (s.lines.deadline() && *s.lines.deadline() <= now)
      s.lines.show_progress(now, true, s.emit());
    add(s.feed("\r" + std::to_string(i) + " of 1000", now));
  }
  add(s.feed("\n", kStart + 10s));
  CHECK(got.size() >= 10);
  CHECK(got.size() <= 12);
  CHECK(got.front() == "0 of 1000");
  CHECK(got.back() == "999 of 1000");
}

TEST_CASE("a bar that stands still is shown when its second is over, and not again at its end") {
  Splitter s;
  s.lines.set_pace({Duration::zero(), 1s});
  CHECK(s.feed("\r10%") == Lines{"10%"});
  CHECK(s.feed("\r20%", kStart + 100ms).empty());
  CHECK(s.feed("\r30%", kStart + 200ms).empty());
  REQUIRE(s.lines.deadline() == kStart + 1s);
  s.lines.show_progress(kStart + 1s, true, s.emit());
  CHECK(std::exchange(s.seen, {}) == Lines{"30%"});
  CHECK_FALSE(s.lines.deadline());
  CHECK(s.feed("\nnext\n", kStart + 2s) == Lines{"next"});
}

TEST_CASE("in a file a bar is shown every 30 s, from 30 s on, and by its last state") {
  Splitter s;
  s.lines.set_pace({30s, 30s});
  Lines got;
  for (int second = 0; second <= 65; ++second) {
    const auto now = kStart + second * 1s;
    const Lines more = s.feed("\r" + std::to_string(second), now);
    got.insert(got.end(), more.begin(), more.end());
    if (s.lines.deadline().value_or(kNever) > now) continue;
    s.lines.show_progress(now, true, s.emit());
    const Lines due = std::exchange(s.seen, {});
    got.insert(got.end(), due.begin(), due.end());
  }
  CHECK(got == Lines{"30", "60"});
  CHECK(s.end() == Lines{"65"});
}

TEST_CASE("a bar without states to show is not asked more often than others") {
  Splitter s;
  s.lines.set_pace({30s, 30s});
  s.feed("\r1%");
  REQUIRE(s.lines.deadline() == kStart + 30s);
  s.lines.show_progress(kStart + 30s, false, s.emit());
  CHECK(s.seen.empty());
  CHECK(s.lines.deadline() == kStart + 60s);
  CHECK(s.end() == Lines{"1%"});
}

TEST_CASE("without a pace only the last state of a bar is given") {
  Splitter s;
  CHECK(s.feed("\r1%\r2%").empty());
  CHECK(s.lines.bar() == Lines{"2%"});
  CHECK(s.lines.deadline() == std::nullopt);
  CHECK(s.feed("\r100%\nnext\npart") == Lines{"100%", "next"});
  CHECK(s.lines.bar().empty());
  CHECK(s.end() == Lines{"part"});
}

TEST_CASE("a bar's last state is shown, whichever way it ends") {
  struct Case {
    const char* text;
    Lines shown;
  };
  const Case cases[] = {
      {"\r1%\r2%\n", {"2%"}},              // carriage returns in front, as tqdm does
      {"1%\r2%\r\n", {"2%"}},              // behind
      {"1%\r2%\r", {"2%"}},                // without a newline
      {"\r1%\r  \rdone\n", {"done"}},      // blanked out and written over
      {"\r1%\r\x1b[2K\r\n", {"1%"}},       // erased: the last state is worth more than nothing
      {"\r1%\r\x1b[K2%\n", {"\x1b[K2%"}},  // the sequence stays, the state counts
      {"a\rb\nplain\n", {"b", "plain"}},
      {"\r\r\n", {""}},
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    Splitter s;
    Lines got = s.feed(c.text);
    const Lines rest = s.end();
    got.insert(got.end(), rest.begin(), rest.end());
    CHECK(got == c.shown);
  }
}

TEST_CASE("bars that run for hours keep no memory of the past") {
  Splitter s;
  s.lines.set_pace({Duration::zero(), 1s});
  std::size_t shown = 0;
  for (int i = 0; i < 100000; ++i) {
    shown += s.feed("\r" + std::string(100, '#') + std::to_string(i), kStart).size();
  }
  CHECK(shown == 1);  // the clock stood still
  const Lines got = s.end();
  REQUIRE(got.size() == 1);
  CHECK(got[0] == std::string(100, '#') + "99999");
}

TEST_CASE("a question is shown before its line ends, once, if a person may answer") {
  const auto due = kStart + LineSplitter::kUnfinishedDelay;
  Splitter s;
  CHECK(s.feed("name? ").empty());
  CHECK(s.lines.deadline() == std::nullopt);
  CHECK(s.lines.take_unfinished(due) == "");  // nobody
  CHECK(s.feed("x\n") == Lines{"name? x"});

  s.lines.set_asks(true);
  CHECK(s.feed("na").empty());
  CHECK(s.feed("me? ", kStart + 1ms).empty());  // a line that still comes is waited for
  CHECK(s.lines.deadline() == due + 1ms);
  CHECK(s.lines.take_unfinished(due) == "");
  CHECK(s.lines.take_unfinished(due + 1ms) == "name? ");
  CHECK(s.lines.deadline() == std::nullopt);
  CHECK(s.lines.take_unfinished(due + 1s) == "");
  CHECK(s.feed("hello x\nnext\n") == Lines{"hello x", "next"});
  CHECK(s.feed("the end").empty());
  CHECK(s.lines.take_unfinished(due) == "the end");
  CHECK(s.end().empty());
  CHECK(s.feed("\r10%\r20%").empty());  // a bar is none
  CHECK(s.lines.take_unfinished(due) == "");
}
