#include "base/run_progress.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {
const TimePoint kNow(1000s);

std::optional<RunProgress> read(std::string_view bytes) {
  ProgressReader reader;
  reader.feed(kNow, bytes);
  return reader.last();
}
}  // namespace

TEST_CASE("run progress: what a program says arrives, with its time") {
  const RunProgress said{
      .at = kNow - 1s, .step = 1200, .total = 5000, .values = {{"loss", 1.83}, {"lr", 3e-4}}};
  CHECK(progress_line_of(said) == "@999000000000 1200/5000 loss=1.83 lr=0.0003\n");
  CHECK(read(progress_line_of(said)) == said);
  const RunProgress bare{.at = kNow, .step = 7, .values = {}};
  CHECK(read(progress_line_of(bare)) == bare);
  const auto nan = read(progress_line_of(
      {.at = kNow, .values = {{"loss", std::numeric_limits<double>::quiet_NaN()}}}));
  REQUIRE(nan);
  CHECK(std::isnan(nan->values.at(0).value));
}

TEST_CASE("run progress: a shell writes lines without a time, and other lines are heartbeats") {
  CHECK(read("\n\n12/100 loss=0.5\n\n") ==
        RunProgress{.at = kNow, .step = 12, .total = 100, .values = {{"loss", 0.5}}});
  for (const char* line : {"\n", "hello\n", "-1\n", "1/-5\n", "5/x\n", "5 loss\n", "5 loss=\n",
                           "5 =1\n", "5 loss=1x\n", "@12\n", "12/100 loss=0.5"}) {
    CAPTURE(line);
    CHECK_FALSE(read(line));
  }
  CHECK(read("3\nrubbish\n")->step == 3);
}

TEST_CASE("run progress: lines come in pieces, and a line without an end costs little memory") {
  ProgressReader reader;
  for (const char c : std::string("1/9\n2/9 a=1\n")) reader.feed(kNow, std::string_view(&c, 1));
  CHECK(reader.last()->step == 2);
  for (int i = 0; i < 100; ++i) reader.feed(kNow, std::string(1000, '3'));
  CHECK(reader.last()->step == 2);
  reader.feed(kNow, "4/9\n5/9\n");  // the first one still belongs to the long line
  CHECK(reader.last()->step == 5);
}

TEST_CASE("run progress: an impossible time is not believed") {
  for (const Duration off : {Duration(1h), Duration(-11s), Duration(-1001s)}) {
    CHECK(read(progress_line_of({.at = kNow + off, .step = 1, .values = {}}))->at == kNow);
  }
}

TEST_CASE("run progress: names and their number are limited, so that a line fits into a pipe") {
  RunProgress said{.at = kNow, .step = 1, .values = {{"val loss=\n", 1}, {"", 2}}};
  CHECK(read(progress_line_of(said))->values == std::vector<ProgressValue>{{"val_loss__", 1}});
  said.values.assign(100, {std::string(1000, 'x'), -std::numeric_limits<double>::max()});
  const std::string line = progress_line_of(said);
  CHECK(line.size() < 4096);
  CHECK(read(line)->values.size() == kMaxProgressValues);
}
