// The last lines of workers, for those who ask.
#include "launcher/output/output_tail.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr auto kOut = OutputStream::out, kErr = OutputStream::err;

std::string tail_words(const std::vector<OutputTail::Line>& lines) {
  std::string text;
  for (const auto& line : lines) text += (line.stream == kErr ? "!" : "") + line.text + "|";
  return text;
}

struct TailsWorld {
  void write(std::string_view bytes) { tails.append(now, 3, kOut, bytes); }
  void pass(Duration time) {
    now += time;
    if (tails.deadline() && *tails.deadline() <= now) tails.on_clock(now);
  }
  std::string take() { return std::exchange(told, {}); }
  TimePoint now = kStart;
  std::string told;
  OutputTails tails{[this](int slot, std::uint64_t lost, const auto& lines) {
    told += std::to_string(slot) + ":" + tail_words(lines);
    if (lost > 0) told += "lost";
  }};
};

}  // namespace

TEST_CASE("output tail: whole lines of both streams, in the order of their ends") {
  OutputTail tail;
  tail.append(kOut, "one\ntw");
  tail.append(kErr, "bad\n");
  tail.append(kOut, "o\r\nthr");
  CHECK(tail_words(tail.lines_after(0)) == "one|!bad|two|");
  const std::uint64_t then = tail.position();
  CHECK(tail.lines_after(then).empty());
  tail.append(kOut, "ee\n");
  CHECK(tail_words(tail.lines_after(then)) == "three|");
  tail.append(kErr, "no end");
  tail.end();
  tail.end();  // there is no unfinished line any more
  CHECK(tail_words(tail.lines_after(then)) == "three|!no end|");
  CHECK(tail.lines_after(0).back().end == tail.position());
}

TEST_CASE("output tail: of a bar the last state, and of a long line its beginning") {
  OutputTail tail;
  tail.append(kErr, "10%\r20%\r30%");
  CHECK(tail.lines_after(0).empty());
  tail.append(kErr, "\r40%\n" + std::string(5000, 'x') + "\n");
  const auto lines = tail.lines_after(0);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].text == "40%");
  CHECK(lines[1].text == std::string(OutputTail::kMostOfLine, 'x'));
}

TEST_CASE("output tail: memory is bounded, and what is gone is counted") {
  OutputTail tail;
  std::string all;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = std::to_string(i) + "\n";
    all += line;
    tail.append(i % 3 == 0 ? kErr : kOut, line);
  }
  CHECK(tail.position() == all.size());
  CHECK(tail.lost_after(0) >= all.size() - OutputTail::kKept);
  CHECK(tail.lost_after(all.size()) == 0);
  const auto lines = tail.lines_after(0);
  CHECK(lines.back().text == "19999");
  CHECK(lines.size() < OutputTail::kKept / 6);
  CHECK(lines.size() > OutputTail::kKept / 6 - 2000);
  // Much at once, which begins in the middle of a line.
  OutputTail at_once;
  at_once.append(kOut, all);
  const auto whole = at_once.lines_after(0);
  CHECK(all.find("\n" + whole.front().text + "\n" + whole[1].text + "\n") != std::string::npos);
}

TEST_CASE("output tails: those who ask get what is kept, and for a while what comes") {
  TailsWorld world;
  world.write("one\n");
  CHECK_FALSE(world.tails.deadline());
  world.tails.ask(world.now, 3, 10s, false);
  CHECK(world.take() == "3:one|");
  world.tails.ask(world.now, 4, 10s, false);  // it has said nothing
  CHECK(world.take() == "4:");
  world.write("two\n");
  world.write("three\n");
  CHECK(world.take().empty());
  world.pass(OutputTails::kTogether);
  CHECK(world.take() == "3:two|three|");
  // The last words come at once.
  world.write("no end");
  world.tails.end(world.now, 3);
  CHECK(world.take() == "3:no end|");
  world.pass(9s);
  world.tails.ask(world.now, 3, 10s, true);
  world.pass(9s);
  world.write("four\n");
  world.pass(50ms);
  CHECK(world.take() == "3:four|");
  world.pass(2s);
  world.write("five\n");
  world.pass(50ms);
  CHECK(world.take().empty());
  CHECK_FALSE(world.tails.deadline());
  // Again, but the question before is over: only what comes.
  world.tails.ask(world.now, 3, 10s, true);
  CHECK(world.take().empty());
  world.write(std::string(2 * OutputTail::kKept, 'x') + "\nsix\n");
  world.pass(50ms);
  CHECK(world.take() == "3:six|lost");
}
