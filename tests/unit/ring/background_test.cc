#include "ring/call/background.h"

#include <atomic>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("background: what was pushed before the end and not taken ends with its error") {
  Completions completions;
  std::atomic<bool> begun = false;
  // Has taken all there was, and is away from the queue until that is closed.
  Background background([&](OperationQueue& queue) {
    while (const auto operation = queue.take()) operation->finish({});
    begun = true;
    while (!queue.closed()) std::this_thread::yield();
  });
  const auto first = std::make_shared<Operation>(completions);
  const auto late = std::make_shared<Operation>(completions);
  REQUIRE(background.push(first));
  while (!begun) std::this_thread::yield();
  REQUIRE(background.push(late));
  background.stop({.code = Errc::peer_lost, .what = "rank 3 was lost", .rank = 3});
  CHECK(first->outcome());
  REQUIRE(late->done());  // else whoever waits for it does so for ever
  CHECK(late->outcome().error().what == "rank 3 was lost");
  CHECK(completions.under_way() == 0);
}
