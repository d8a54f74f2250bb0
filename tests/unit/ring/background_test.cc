#include "ring/call/background.h"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("background: operations that no thread has taken end with the final error") {
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
  REQUIRE(late->done());  // otherwise a thread would wait for it for ever
  CHECK(late->outcome().error().what == "rank 3 was lost");
  CHECK(completions.under_way() == 0);
}

namespace {

void await(const std::function<bool()>& ready) {
  const TimePoint until = steady_now() + std::chrono::seconds(20);
  while (!ready() && steady_now() < until) std::this_thread::yield();
  REQUIRE(ready());
}

void serve_all(OperationQueue& queue) {
  while (const auto operation = queue.take()) operation->finish({});
}

}  // namespace

TEST_CASE("background: an idle queue holds no thread, and many queues share the pool's threads") {
  Completions completions;
  constexpr int kMany = 50;
  std::vector<std::unique_ptr<Background>> all;
  for (int i = 0; i < kMany; ++i) {
    all.push_back(std::make_unique<Background>(serve_all, std::chrono::milliseconds(1)));
    const auto operation = std::make_shared<Operation>(completions);
    REQUIRE(all.back()->push(operation));
    Completions::wait([&] { return operation->done(); });
    await([&] { return all.back()->rests(); });
    CHECK_FALSE(all.back()->busy());
  }
  CHECK(ThreadPool::of_process()->threads() < 5);
  // One that has rested works again.
  const auto again = std::make_shared<Operation>(completions);
  REQUIRE(all.front()->push(again));
  Completions::wait([&] { return again->done(); });
  CHECK(again->outcome());
}

TEST_CASE("background: operations that come while a thread is returned are carried out") {
  Completions completions;
  Background background(serve_all, std::chrono::nanoseconds(1));
  for (int i = 0; i < 2000; ++i) {
    const auto operation = std::make_shared<Operation>(completions);
    REQUIRE(background.push(operation));
    Completions::wait([&] { return operation->done(); });
  }
}

TEST_CASE("thread pool: tasks that wait for each other each have a thread") {
  const auto pool = ThreadPool::of_process();
  std::atomic<int> there = 0, done = 0;
  for (int i = 0; i < 8; ++i) {
    REQUIRE(pool->run([&] {
      ++there;
      while (there < 8) std::this_thread::yield();
      ++done;
    }));
  }
  await([&] { return done == 8; });
  // Those that are free for long end, and more can be had later.
  await([&] { return pool->threads() <= ThreadPool::kKept; });
  REQUIRE(pool->run([&] { ++done; }));
  await([&] { return done == 9; });
}
