// Exceptions in the output of workers, in pieces of every size.
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
  // However many there are, one message belongs to it.
  CHECK(
      last_in("terminate called after throwing an instance of 'X'\n  what():  x\n  what():  y\n") ==
      Lines{"terminate called after throwing an instance of 'X'", "  what():  x"});
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

TEST_CASE("a traceback of another form is a traceback without an end") {
  const std::string odd = "12:01 " + kHead + "\n12:02   f()\n12:02 E: x\n";
  CHECK(last_in(odd) == Lines{});
  CHECK(last_in(kHead + "\n\tf()\nE: x\n" + odd) == Lines{});
  CHECK(last_in(kHead + "\n\tf()\nE: x\n") == Lines{kHead, "\tf()", "E: x"});
}

TEST_CASE("an exception that Python ignores does not count") {
  const std::string ignored = "Exception ignored in: <function f>\n" + kHead + "\n  f()\nE: y\n";
  CHECK_FALSE(last_in(ignored));
  CHECK(last_in(kHead + "\n  f()\nE: x\n" + ignored)->at(2) == "E: x");
}

TEST_CASE("a traceback is as old as its first line, and later ones after the stop do not count") {
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

namespace {

// As last_in(), all of it.
Traceback traceback_in(const std::string& text) {
  (void)last_in(text);
  TracebackWatch watch;
  watch.feed(kStart, text);
  REQUIRE(watch.last());
  return *watch.last();
}

std::string thrown(const std::string& prefix, const std::string& error) {
  return prefix + kHead + "\n" + prefix + "  File \"a.py\", line 3, in f\n" + prefix + "    f()\n" +
         prefix + error + "\n";
}

const std::string kDuring = "During handling of the above exception, another exception occurred:";
const std::string kCause = "The above exception was the direct cause of the following exception:";

}  // namespace

TEST_CASE("the first and the last exception of a chain are kept, and the others are counted") {
  for (const std::string prefix : {"", "[rank1]: "}) {
    CAPTURE(prefix);
    const std::string gap = prefix + "\n" + prefix + kDuring + "\n" + prefix + "\n";
    const Traceback two =
        traceback_in("x\n" + thrown(prefix, "ValueError: a\n" + prefix + "more") + gap +
                     thrown(prefix, "KeyError: b\n" + prefix + "note") + "other\n");
    CHECK(two.error == prefix + "KeyError: b");
    CHECK(two.lines.size() == 4);
    CHECK(two.lines.back() == two.error);
    CHECK(two.behind.front() == prefix + "note");
    CHECK(two.first_error == prefix + "ValueError: a");
    CHECK(two.first.front() == prefix + kHead);
    CHECK(two.first.back() == prefix + "more");
    CHECK(two.between == 0);
    const std::string from = "\n" + prefix + kCause + "\n\n";
    const Traceback four =
        traceback_in(thrown(prefix, "A: a") + from + thrown(prefix, "B: b") + gap +
                     thrown(prefix, "C: c") + from + thrown(prefix, "D: d"));
    CHECK(four.first_error == prefix + "A: a");
    CHECK(four.error == prefix + "D: d");
    CHECK(four.between == 2);
  }
}

TEST_CASE("a chain is as old as its first exception") {
  TracebackWatch watch;
  watch.feed(kStart, thrown("", "A: a") + "\n" + kDuring + "\n\n");
  watch.feed(kStart + 3s, thrown("", "B: b"));
  CHECK(watch.last()->begun == kStart);
  CHECK(watch.begun() == kStart);
}

TEST_CASE("independent exceptions are not a chain") {
  CHECK(traceback_in(thrown("", "A: a") + "\n" + thrown("", "B: b")).first.empty());
  CHECK(
      traceback_in(thrown("", "A: a") + kDuring + "\nother\n" + thrown("", "B: b")).first.empty());
  CHECK(traceback_in(kDuring + "\n" + thrown("", "B: b")).first.empty());
  // Far behind a long message it is one.
  CHECK(
      traceback_in(thrown("", "A: a") + numbered(50, "more ") + kDuring + "\n" + thrown("", "B: b"))
          .first_error == "A: a");
}

TEST_CASE("the names and the last frames of an exception group are kept") {
  const std::string group =
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"a.py\", line 1, in <module>\n"
      "  |     f()\n"
      "  |     ^^^\n"
      "  | ExceptionGroup: eg (2 sub-exceptions)\n"
      "  +-+---------------- 1 ----------------\n"
      "    | Traceback (most recent call last):\n"
      "    |   File \"a.py\", line 8, in <module>\n"
      "    |     g()\n"
      "    |   File \"a.py\", line 9, in g\n"
      "    |     raise x\n"
      "    | ValueError: x\n"
      "y\n"
      "    +---------------- 2 ----------------\n"
      "    | ExceptionGroup: inner (1 sub-exception)\n"
      "    +-+---------------- 1 ----------------\n"
      "      | TypeError: t\n"
      "      +------------------------------------\n";
  const Lines kept = {"  + Exception Group Traceback (most recent call last):",
                      "  |   File \"a.py\", line 1, in <module>",
                      "  |     f()",
                      "  | ExceptionGroup: eg (2 sub-exceptions)",
                      "  +-+---------------- 1 ----------------",
                      "    |   File \"a.py\", line 9, in g",
                      "    |     raise x",
                      "    | ValueError: x",
                      "    +---------------- 2 ----------------",
                      "    | ExceptionGroup: inner (1 sub-exception)",
                      "    +-+---------------- 1 ----------------",
                      "      | TypeError: t"};
  const Traceback alone = traceback_in(group + "other\n");
  CHECK(alone.lines == kept);
  CHECK(alone.error == "ExceptionGroup: eg (2 sub-exceptions)");
  CHECK(alone.first.empty());
  // In a chain.
  const Traceback chain = traceback_in(group + "\n" + kDuring + "\n\n" + thrown("", "KeyError: k"));
  CHECK(chain.first == kept);
  CHECK(chain.first_error == alone.error);
  CHECK(chain.error == "KeyError: k");
  // A large one is cut, and says how much it left out.
  std::string large = group;
  for (int i = 0; i < 100; ++i) large += "    | E: " + std::to_string(i) + "\n";
  const Traceback cut = traceback_in(large);
  REQUIRE(cut.lines.size() == 12);
  CHECK(cut.lines.back() == "  | … 101 more lines");
  CHECK(cut.error == alone.error);
}

TEST_CASE("a SyntaxError of the program itself, which has no traceback") {
  for (const std::string name :
       {"SyntaxError: invalid syntax", "IndentationError: x", "TabError: y"}) {
    const std::string error = "  File \"a.py\", line 1\n    def f(:\n          ^\n" + name;
    const Traceback found = traceback_in("before\n" + error + "\nbehind\n");
    CHECK(found.lines == Lines{"  File \"a.py\", line 1", "    def f(:", "          ^", name});
    CHECK(found.error == name);
    CHECK(traceback_in(error).error == name);  // without a newline
  }
  CHECK_FALSE(last_in("  File \"a.py\", line 1\n    x\nOther: y\n"));
  CHECK_FALSE(last_in("  File \"a.py\", line 1, in f\n    x\nSyntaxError: y\n"));
  CHECK_FALSE(last_in("  File \"a.py\", line 1\n" + numbered(50, "  ") + "SyntaxError: y\n"));
  const Traceback imported = traceback_in(
      kHead + "\n  File \"b.py\", line 1, in <module>\n    import a\n  File \"a.py\", line 1\n" +
      "    def f(:\n          ^\nSyntaxError: invalid syntax\n");
  CHECK(imported.error == "SyntaxError: invalid syntax");
  CHECK(imported.lines.size() == 7);
}
