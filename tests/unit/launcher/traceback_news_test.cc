// Workers that have printed a traceback and still run: which of them the node reports to the
// leader.
#include "launcher/node/watch/traceback_news.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// It printed its traceback at the start.
TracebackNews::Worker threw(Slot slot) {
  return {.slot = slot, .pid = 100 + slot, .round = 1, .after = {.threw = kStart, .said = kStart}};
}

}  // namespace

TEST_CASE("a worker that shows nothing after its traceback is reported once") {
  TracebackNews news;
  const auto worker = threw(1);
  CHECK(news.look(kStart, {worker}).empty());
  CHECK(news.deadline() == kStart + 10s);
  CHECK(news.look(kStart + 10s - 1ms, {worker}).empty());
  const auto told = news.look(kStart + 10s, {worker});
  REQUIRE(told.size() == 1);
  CHECK(told[0].slot == 1);
  CHECK(told[0].pid == 101);
  CHECK(told[0].threw == kStart);
  CHECK_FALSE(told[0].over);
  CHECK(news.look(kStart + 11s, {worker}).empty());
  CHECK(news.deadline() == kStart + 12s);
  CHECK(news.look(kStart + 12s, {}).empty());
  CHECK_FALSE(news.deadline());
}

TEST_CASE("a worker that continues is not reported") {
  for (const bool prints : {true, false}) {
    CAPTURE(prints);
    TracebackNews news;
    auto worker = threw(0);
    CHECK(news.look(kStart, {worker}).empty());
    (prints ? worker.after.said : worker.after.moved) = kStart + 2s + 1ms;
    CHECK(news.look(kStart + 10s, {worker}).empty());
    CHECK_FALSE(news.deadline());
    CHECK(news.look(kStart + 100s, {worker}).empty());
  }
}

TEST_CASE("output and moves right after the traceback are no sign of progress") {
  TracebackNews news;
  auto worker = threw(0);
  worker.after.said = worker.after.moved = kStart + 2s;
  CHECK(news.look(kStart + 10s, {worker}).size() == 1);
}

TEST_CASE("a reported worker that continues after all is reported as continuing") {
  TracebackNews news;
  auto worker = threw(0);
  CHECK(news.look(kStart + 10s, {worker}).size() == 1);
  worker.after.moved = kStart + 11s;
  const auto over = news.look(kStart + 12s, {worker});
  REQUIRE(over.size() == 1);
  CHECK(over[0].over);
  CHECK(news.look(kStart + 13s, {worker}).empty());
  // Its next traceback is another one.
  worker.after.threw = kStart + 20s;
  CHECK(news.look(kStart + 20s, {worker}).empty());
  CHECK(news.look(kStart + 30s, {worker}).size() == 1);
}

TEST_CASE("a worker that waits for others is not reported until it stops waiting") {
  TracebackNews news;
  auto worker = threw(0);
  worker.after.inside = true;
  CHECK(news.look(kStart + 10s, {worker}).empty());
  CHECK(news.deadline() == kStart + 11s);
  worker.after.inside = false;
  worker.waits = true;
  CHECK(news.look(kStart + 11s, {worker}).empty());
  worker.waits = false;
  CHECK(news.look(kStart + 12s, {worker}).size() == 1);
}

TEST_CASE("another round and another process are signs of progress") {
  TracebackNews news;
  auto worker = threw(0);
  CHECK(news.look(kStart, {worker}).empty());
  worker.round = 2;
  CHECK(news.look(kStart + 10s, {worker}).empty());
  CHECK_FALSE(news.deadline());
  worker.pid = 7;
  CHECK(news.look(kStart + 10s, {worker}).size() == 1);
}

TEST_CASE("each worker is judged by itself") {
  TracebackNews news;
  auto goes_on = threw(0);
  goes_on.after.said = kStart + 5s;
  auto later = threw(2);
  later.after.threw = kStart + 3s;
  const auto told = news.look(kStart + 10s, {goes_on, threw(1), later});
  REQUIRE(told.size() == 1);
  CHECK(told[0].slot == 1);
  CHECK(news.deadline() == kStart + 11s);
}
