// Exceptions in what workers write, in pieces of every size.
#include "launcher/output/traceback_watch.h"

#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Lines = std::vector<std::string>;

const std::string kHead = "Traceback (most recent call last):";

std::string numbered(int lines, const std::string& text) {
  std::string out;
  for (int i = 0; i < lines; ++i) out += text + std::to_string(i) + "\n";
  return out;
}

// The same whole, in pieces, and byte by byte.
std::optional<Lines> last_in(const std::string& text) {
  std::optional<Lines> first;
  for (const std::size_t piece : {text.size(), std::size_t{7}, std::size_t{1}}) {
    CAPTURE(piece);
    TracebackWatch watch;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      watch.feed(kStart, std::string_view(text).substr(at, piece));
    }
    const auto last = watch.last();
    const auto lines = last ? std::optional(last->lines) : std::nullopt;
    if (piece == text.size()) first = lines;
    CHECK(lines == first);
  }
  return first;
}

}  // namespace

TEST_CASE("the last traceback is found, whatever stands before and behind it") {
  CHECK_FALSE(last_in("nothing\nof the kind\n"));
  const std::string error = kHead + "\n  File \"a.py\"\n    f()\nValueError: x";
  const Lines whole = {kHead, "  File \"a.py\"", "    f()", "ValueError: x"};
  CHECK(last_in(error) == whole);
  CHECK(last_in(error + "\r\n") == whole);
  CHECK(last_in(numbered(50, "before ") + error) == whole);
  CHECK(last_in(kHead + "\n  g()\nKeyError\n\nDuring its handling:\n\n" + error) == whole);
  // The message may go on behind it.
  CHECK(last_in(error + "\n\n" + numbered(50, "more ")) == whole);
  TracebackWatch watch;
  watch.feed(kStart, error + "\n\n" + numbered(50, "more "));
  CHECK(watch.last()->behind == Lines{"more 0", "more 1", "more 2", "more 3"});
  // Of a long one the end is kept.
  const auto long_one = last_in(kHead + "\n" + numbered(90, "  line ") + "ValueError: x\n");
  REQUIRE(long_one);
  CHECK(long_one->size() == 8);
  CHECK(long_one->front() == "  line 83");
  CHECK(long_one->back() == "ValueError: x");
  CHECK(last_in("terminate called after throwing an instance of 'X'\n  what():  x\nmore\n") ==
        Lines{"terminate called after throwing an instance of 'X'", "  what():  x"});
}

TEST_CASE("a traceback with a prefix of its own ends where the prefix does") {
  TracebackWatch watch;
  watch.feed(kStart, "[rank1]: " + kHead + "\n[rank1]:   f()\n[rank1]: E: x\n[rank1]: y\nother\n");
  CHECK(watch.last()->lines == Lines{"[rank1]: " + kHead, "[rank1]:   f()", "[rank1]: E: x"});
  CHECK(watch.last()->behind == Lines{"[rank1]: y"});
  // A progress bar is none.
  CHECK(last_in("\r10%\r20%" + kHead + "\n  f()\nE: x\n") == Lines{"20%" + kHead, "  f()", "E: x"});
  CHECK(last_in("10%\r20%\r" + kHead + "\n  f()\nE: x\n") == Lines{kHead, "  f()", "E: x"});
  CHECK(last_in(std::string(5000, '#') + "\r" + kHead + "\n  f()\nE: x\n") ==
        Lines{kHead, "  f()", "E: x"});
}

TEST_CASE("a traceback that is written otherwise is one without an end") {
  const std::string odd = "12:01 " + kHead + "\n12:02   f()\n12:02 E: x\n";
  CHECK(last_in(odd) == Lines{});
  CHECK(last_in(kHead + "\n\tf()\nE: x\n" + odd) == Lines{});
  CHECK(last_in(kHead + "\n\tf()\nE: x\n") == Lines{kHead, "\tf()", "E: x"});
}

TEST_CASE("an exception that Python ignores is none") {
  const std::string ignored = "Exception ignored in: <function f>\n" + kHead + "\n  f()\nE: y\n";
  CHECK_FALSE(last_in(ignored));
  CHECK(last_in(kHead + "\n  f()\nE: x\n" + ignored)->at(2) == "E: x");
}

TEST_CASE("it is as old as its first line, and what comes after the stop does not count") {
  TracebackWatch watch;
  watch.feed(kStart, "text\n" + kHead + "\n  f");
  watch.feed(kStart + 1s, "()\nE: x\nmore\n");
  CHECK(watch.last()->begun == kStart);
  watch.feed(kStart + 2s, kHead + "\n  g()\nE: y");
  CHECK(watch.last()->begun == kStart + 2s);
  watch.stop();
  watch.feed(kStart + 3s, " and more\n" + kHead + "\n  h()\nE: z\n");
  CHECK(watch.last()->begun == kStart + 2s);
  CHECK(watch.last()->lines == Lines{kHead, "  g()", "E: y"});
}

TEST_CASE("long lines cost little") {
  TracebackWatch watch;
  for (int i = 0; i < 100; ++i) watch.feed(kStart, std::string(100000, 'x'));
  watch.feed(kStart, "\n" + kHead + "\n  f()\nE: " + std::string(100000, 'x') + "\n");
  REQUIRE(watch.last());
  CHECK(watch.last()->lines[2].size() == 1024);
}
