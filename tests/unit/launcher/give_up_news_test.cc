// A host reports a worker that has printed the time-out of a wait for others, once in a round.
#include "launcher/node/watch/give_up_news.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const std::vector<std::string> kTimeOut = {
    "RuntimeError: [x.cc:81] Timed out waiting 3000ms for recv operation to complete"};

std::vector<GiveUpNews::Worker> printed(std::vector<std::string> lines, int round = 1) {
  return {{.slot = 3, .round = round, .last = {kStart, std::move(lines), {}}}};
}

}  // namespace

TEST_CASE("give-up news: once in a round, as soon as the words are there") {
  GiveUpNews news;
  CHECK(news.look(kStart, printed({})).empty());
  REQUIRE(news.deadline());
  CHECK(*news.deadline() < kStart + 200ms);
  const auto told = news.look(kStart + 50ms, printed(kTimeOut));
  REQUIRE(told.size() == 1);
  CHECK(told[0].slot == 3);
  CHECK_FALSE(news.deadline());
  CHECK(news.look(kStart + 60ms, printed(kTimeOut)).empty());
  CHECK(news.look(kStart + 9s, printed(kTimeOut, 2)).size() == 1);
}

TEST_CASE("give-up news: another exception is no news, and is not looked at for ever") {
  GiveUpNews news;
  CHECK(news.look(kStart, printed({"ValueError: x"})).empty());
  CHECK(news.deadline());
  CHECK(news.look(kStart + 1s, printed({"ValueError: x"})).empty());
  CHECK_FALSE(news.deadline());
}
