#include "launcher/output/output_hub.h"

#include <pty.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launcher/output/line_merger.h"
#include "launcher/output/line_splitter.h"
#include "tests/unit/launcher/hub_world.h"
#include "tests/unit/launcher/put.h"
#include "tests/unit/launcher/screen.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("lines of several workers are never mixed, and each stream goes to its own output") {
  Hub h;
  h.start();
  auto a = h.open(0), b = h.open(1);
  put(a.out, "first half, ");
  put(b.out, "whole\nrest");
  put(b.err, "trouble\n");
  h.turn();
  h.hub->own_line("dlaunch: note");
  put(a.out, "second half\n");
  h.turn();
  CHECK(h.shown() == "[1] whole\n[0] first half, second half\n");
  CHECK(available(h.err.reading) == "[1] trouble\ndlaunch: note\n");
  h.hub->worker_ended(1);
  CHECK(h.shown() == "[1] rest\n");  // the partial last line gets its newline
}

TEST_CASE("stdout and stderr in one pipe share one queue") {
  Hub h;
  h.err_fd = h.out.writing.get();
  h.start();
  auto a = h.open(0);
  put(a.out, "out\n");
  h.turn();
  put(a.err, "err\n");
  h.turn();
  h.hub->own_line("own");
  CHECK(h.shown() == "[0] out\n[0] err\nown\n");
}

TEST_CASE(
    "what a dead worker's pipe holds is shown at once; a grandchild is heard, not waited for") {
  Hub h;
  h.start();
  auto a = h.open(0);
  put(a.out, "last words");
  put(a.err, "why\n");
  h.hub->worker_ended(0);
  CHECK(h.shown() == "[0] last words\n");
  CHECK(h.hub->stderr_tail(0, 5) == std::vector<std::string>{"why"});
  put(a.out, "grandchild\n");
  put(a.err, "of it\n");
  h.turn();
  CHECK(h.shown() == "[0] grandchild\n");
  CHECK(h.hub->stderr_tail(0, 5) == std::vector<std::string>{"why"});
  bool done = false;
  h.hub->flush(Duration::max(), [&] { done = true; });
  h.turn();
  CHECK(done);
  CHECK(::write(a.out.get(), "x", 1) < 0);
  CHECK(errno == EPIPE);
}

TEST_CASE("the last exception before our signal is known") {
  Hub h;
  h.start();
  auto a = h.open(0), b = h.open(1);
  const std::string traceback = "Traceback (most recent call last):\n  f()\nKeyError: ";
  const TimePoint before = steady_now();
  put(a.err, traceback + "1\n");
  h.turn();
  const TimePoint read = steady_now();
  put(a.err, "going on\n");
  h.turn();
  h.hub->before_signal(0);
  put(a.err, traceback + "2\n");
  h.hub->worker_ended(0);
  CHECK(h.hub->stderr_tail(0, 1) == std::vector<std::string>{"KeyError: 2"});
  const auto last = h.hub->last_traceback(0);
  REQUIRE(last);
  CHECK(last->begun >= before);
  CHECK(last->begun <= read);
  CHECK(last->lines.back() == "KeyError: 1");
  // It stood in the pipe when the signal was sent, and nobody had read it.
  put(b.err, traceback + "3");
  h.hub->before_signal(1);
  CHECK(available(h.err.reading).ends_with("[1]   f()\n"));
  h.hub->worker_ended(1);
  REQUIRE(h.hub->last_traceback(1));
  CHECK(h.hub->last_traceback(1)->lines.back() == "KeyError: 3");
  h.hub->before_signal(7);  // none there
  h.open(1, 2);             // a new round
  CHECK_FALSE(h.hub->last_traceback(1));
}

TEST_CASE("a burst of tracebacks is reported once, and later ones after a pause") {
  Hub h(8);
  h.start();
  std::vector<OutputHub::WorkerStdio> workers;
  for (int rank = 0; rank < 8; ++rank) workers.push_back(h.open(rank));
  std::vector<TimePoint> told;
  h.hub->on_traceback([&] { told.push_back(steady_now()); });
  const auto begun = steady_now();
  for (int i = 0; i < 20; ++i) {
    for (auto& worker : workers)
      put(worker.err, "Traceback (most recent call last):\n  f()\nE: x\n");
    h.turn();
  }
  CHECK(told.size() >= 1);
  CHECK(static_cast<double>(told.size()) <= 1 + (steady_now() - begun) / 500ms);
  const auto before = told.size();
  put(workers[0].err, "Traceback (most recent call last):\n  f()\nE: y\n");
  h.turn_until([&] { return told.size() > before; });
  CHECK(told.back() - told[told.size() - 2] >= 500ms);
}

TEST_CASE("a reader that does not read delays the workers, and gets everything in the end") {
  Hub h;
  h.start();
  auto a = h.open(0);
  ::fcntl(a.out.get(), F_SETFL, O_NONBLOCK);
  const std::string line(99, 'x');
  std::size_t lines = 0, refused = 0;
  while (refused < 3) {  // full, though the hub had its turns
    if (::write(a.out.get(), (line + "\n").data(), 100) == 100) {
      ++lines;
      refused = 0;
    } else {
      ++refused;
      h.turn();
    }
  }
  CHECK(lines * 100 > 64 << 10);
  CHECK(lines * 100 < 8 << 20);
  h.hub->worker_ended(0);
  bool done = false;
  h.hub->flush(Duration::max(), [&] { done = true; });
  std::string text;
  h.turn_until([&] {
    text += h.shown();
    return done;
  });
  text += h.shown();
  std::string expected;
  for (std::size_t i = 0; i < lines; ++i) expected += "[0] " + line + "\n";
  CHECK((text == expected));
}

TEST_CASE("workers that wait for room are read in turn") {
  Hub h(4);
  h.start();
  std::vector<OutputHub::WorkerStdio> workers;
  for (int r = 0; r < 4; ++r) {
    workers.push_back(h.open(r));
    ::fcntl(workers.back().out.get(), F_SETFL, O_NONBLOCK);
  }
  const std::string line(4095, 'x');
  auto fill = [&] {
    for (auto& w : workers) {
      while (::write(w.out.get(), (line + "\n").data(), 4096) == 4096) {
      }
    }
  };
  std::array<std::size_t, 4> seen{};
  for (int i = 0; i < 400; ++i) {
    fill();
    h.turn();
    const std::string text = h.shown();
    for (std::size_t at = text.find('['); at != std::string::npos; at = text.find('[', at + 1)) {
      if (at + 1 < text.size()) ++seen[static_cast<std::size_t>(text[at + 1] - '0')];
    }
  }
  const auto [least, most] = std::minmax_element(seen.begin(), seen.end());
  CHECK(*least > 0);
  CHECK(*most < 2 * *least + 600);  // a pipe's fill, 256 lines, comes in one go
}

// For what is held back only for a time: an attempt that comes too late to see it held is false,
// and has checked nothing.
template <class Attempt>
void in_time(Attempt attempt) {
  for (int i = 0; i < 50; ++i) {
    if (attempt()) return;
  }
  FAIL("the time was over in each attempt");
}

TEST_CASE("merged lines come when all ranks have printed them, or when their time is over") {
  in_time([] {
    Hub h;
    h.plan.output.mode = OutputMode::merged;
    h.start();
    auto a = h.open(0), b = h.open(1);
    const auto begun = steady_now();
    put(a.out, "same\nonly me\n");
    h.turn();
    const std::string of_one = h.shown();
    put(b.out, "same\n");
    h.turn();
    const std::string of_both = h.shown();
    if (steady_now() - begun >= LineMerger::kWindow) return false;
    CHECK(of_one.empty());
    CHECK(of_both == "[0-1] same\n");
    std::string text;
    h.turn_until([&] { return !(text = h.shown()).empty(); });
    CHECK(text == "[0] only me\n");
    put(a.out, "end\n");
    h.turn();
    h.hub->worker_ended(0);
    h.hub->worker_ended(1);
    CHECK(h.shown() == "[0] end\n");
    return true;
  });
}

TEST_CASE("a progress bar's state is shown when its time has come, without more input") {
  in_time([] {
    Hub h;
    h.plan.output.bars = BarMode::lines;
    h.start();
    auto a = h.open(0);
    const auto begun = steady_now();
    put(a.out, "\r1%");
    h.turn();
    const std::string first = h.shown();
    put(a.out, "\r2%");
    put(a.out, "\r3%");
    h.turn();
    const std::string next = h.shown();
    if (steady_now() - begun >= 1s) return false;
    CHECK(first == "[0] 1%\n");
    CHECK(next.empty());
    std::string text;
    h.turn_until([&] { return !(text = h.shown()).empty(); });
    CHECK(text == "[0] 3%\n");
    return true;
  });
}

TEST_CASE("in a pipe a progress bar is shown by its last state, a little after its line ended") {
  for (const BarMode mode : {BarMode::first, BarMode::all, BarMode::at_end}) {
    Hub h;
    h.plan.output.bars = mode;
    h.plan.output.cursor = true;  // of a terminal that is none
    h.start();
    auto a = h.open(0), b = h.open(1);
    for (const char* state : {"\r 1%", "\r 50%", "\r100%"}) {
      put(a.out, state);
      put(b.out, state);
      h.turn();
    }
    CHECK(h.shown().empty());
    put(a.out, "\n");
    put(b.out, "\nword\n");
    std::string text;
    h.turn_until([&] { return (text += h.shown()).size() >= 27; });
    CHECK(text == "[1] 100%\n[1] word\n[0] 100%\n");
  }
}

TEST_CASE("on a terminal the first rank's bar stands below all lines, and each ends as a line") {
  int master = -1, slave = -1;
  winsize size{.ws_row = 24, .ws_col = 20, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(::openpty(&master, &slave, nullptr, nullptr, &size) == 0);
  const UniqueFd ours(master), theirs(slave);
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  Hub h;
  h.out_fd = h.err_fd = theirs.get();
  h.plan.output.cursor = true;
  h.start();
  auto a = h.open(0), b = h.open(1);
  Screen screen(20);
  const auto seen_is = [&](const std::vector<std::string>& rows) {
    h.turn_until([&] {
      std::array<char, 4096> buffer{};
      const auto n = ::read(ours.get(), buffer.data(), buffer.size());
      screen.write({buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))});
      return screen.rows() == rows;
    });
  };
  put(b.err, "\rbar of one 1%");
  seen_is({"[1] bar of one 1%"});
  put(a.err, "\rbar 1% which is too long");
  seen_is({"[0] bar 1% which is"});
  put(b.out, "word\n");
  seen_is({"[1] word", "[0] bar 1% which is"});
  h.hub->own_line("dlaunch: note");
  seen_is({"[1] word", "dlaunch: note", "[0] bar 1% which is"});
  put(b.err, "\rdone\n");
  seen_is({"[1] word", "dlaunch: note", "[1] done", "[0] bar 1% which is"});
  put(a.err, "\r50%");
  seen_is({"[1] word", "dlaunch: note", "[1] done", "[0] 50%"});
  h.hub->worker_ended(0);
  h.hub->worker_ended(1);
  seen_is({"[1] word", "dlaunch: note", "[1] done", "[0] 50%", ""});
}

TEST_CASE("time stamps stand before the prefix and have milliseconds") {
  Hub h;
  h.plan.output.timestamps = h.plan.output.host_prefix = true;
  h.plan.host = "node";
  h.start();
  auto a = h.open(0);
  put(a.out, "x\n");
  h.turn();
  const std::string text = h.shown();
  REQUIRE(text.size() == std::string("2026-11-21 14:03:07.123 [node:0] x\n").size());
  CHECK(text.substr(23) == " [node:0] x\n");
  CHECK(text[19] == '.');
}

TEST_CASE("stdin goes to its takers, no faster than the slowest, and ends with ours") {
  Hub h(3);
  h.plan.stdin_to = StdinPlan::all;
  h.start();
  auto a = h.open(0), b = h.open(1), c = h.open(2);
  put(h.in.writing, "hello");
  h.turn();
  CHECK(available(a.in) == "hello");
  CHECK(available(b.in) == "hello");
  c.in.reset();  // closed: no taker any more
  ::fcntl(h.in.writing.get(), F_SETFL, O_NONBLOCK);
  std::size_t accepted = 0, refused = 0;
  std::string seen;
  while (refused < 3) {
    const ssize_t n = ::write(h.in.writing.get(), std::string(4096, 'x').data(), 4096);
    if (n > 0) {
      accepted += static_cast<std::size_t>(n);
      refused = 0;
    } else {
      ++refused;
    }
    h.turn();
    seen += available(a.in);  // b does not read
  }
  CHECK(accepted < 1 << 20);
  CHECK(seen.size() < accepted);
  std::string rest;
  h.in.writing.reset();
  h.turn_until([&] {
    seen += available(a.in);
    rest += available(b.in);
    return rest.size() == accepted && seen.size() == accepted;
  });
  char byte = 0;
  h.turn();
  CHECK(::read(a.in.get(), &byte, 1) == 0);
  CHECK(::read(b.in.get(), &byte, 1) == 0);
}

TEST_CASE("stdin is not read for workers that no longer take it") {
  Hub h;
  h.start();
  auto a = h.open(0), b = h.open(1);
  h.turn();
  a.in.reset();
  put(h.in.writing, "for the next program");
  h.turn();
  CHECK(available(h.in.reading) == "for the next program");
  char byte = 0;
  CHECK(::read(b.in.get(), &byte, 1) == 0);  // has /dev/null
}

TEST_CASE("flushing towards a reader that does not read ends after its limit") {
  Hub h;
  h.start();
  auto a = h.open(0);
  const std::string text(60000, 'x');
  for (int i = 0; i < 5; ++i) {
    put(a.out, text + "\n");
    h.turn();
  }
  h.hub->worker_ended(0);
  bool done = false;
  h.hub->flush(50ms, [&] { done = true; });
  h.turn_until([&] { return done; });
  CHECK(done);
}

TEST_CASE("passed-on output arrives completely, and the time of its last part is known") {
  Hub h;
  h.start();
  Pipe from;
  int ended = 0;
  h.hub->pass_on(std::move(from.reading), OutputStream::out, "[2] a\n[2] b", [&] { ++ended; });
  const TimePoint begin = h.hub->passed_at();
  h.turn();
  CHECK(h.hub->passed_at() == begin);  // nothing has come
  put(from.writing, "c\nrest");
  h.turn();
  const TimePoint first = h.hub->passed_at();
  CHECK(first > begin);
  CHECK(first <= steady_now());
  h.turn();
  CHECK(h.hub->passed_at() == first);
  CHECK(h.shown() == "[2] a\n[2] bc\n");

  // Nobody reads our output: that nothing is read here does not mean that nothing comes.
  ::fcntl(from.writing.get(), F_SETFL, O_NONBLOCK);
  const std::string line = std::string(4095, 'x') + "\n";
  while (::write(from.writing.get(), line.data(), line.size()) > 0) h.turn();
  const TimePoint held_up = h.hub->passed_at();
  h.turn();
  CHECK(h.hub->passed_at() > held_up);
  std::string seen;
  from.writing.reset();
  h.turn_until([&] {
    seen += h.shown();
    return ended == 1;
  });
  CHECK(seen.starts_with("restx"));
  CHECK(h.hub->passed_at() == h.hub->passed_at());
}

TEST_CASE("on a terminal the last lines of a rank are known") {
  using Lines = std::vector<std::string>;
  int master = -1, slave = -1;
  REQUIRE(::openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
  const UniqueFd ours(master), theirs(slave);
  for (const bool terminal : {true, false}) {
    CAPTURE(terminal);
    Hub h(2);
    if (terminal) h.out_fd = h.err_fd = theirs.get();
    h.start();
    auto a = h.open(0), b = h.open(1);
    put(b.err, "x\n");
    put(a.err, "1\n2\n");
    h.hub->before_signal(1);
    h.hub->before_signal(0);
    CHECK(h.hub->shown_last(0, {"1", "2"}) == terminal);
    CHECK(h.hub->shown_last(0, {"2"}) == terminal);
    CHECK_FALSE(h.hub->shown_last(0, {"x", "1", "2"}));
    CHECK_FALSE(h.hub->shown_last(1, {"2"}));
    CHECK_FALSE(h.hub->shown_last(0, Lines{}));
    h.hub->own_line("dlaunch: something else");
    CHECK_FALSE(h.hub->shown_last(0, {"2"}));
  }
}
