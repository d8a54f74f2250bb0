#include "ring/call/abort_flag.h"

#include <chrono>
#include <future>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const Error kLost{.code = Errc::peer_lost, .what = "rank 2 was lost", .rank = 2};

}  // namespace

TEST_CASE("the first error wins, and its wakers run once") {
  AbortFlag flag;
  int woken = 0;
  flag.on_raise([&] { ++woken; });
  CHECK_FALSE(flag.raised());
  CHECK(flag.raise(kLost));
  CHECK_FALSE(flag.raise({.code = Errc::io, .what = "later"}));
  CHECK(woken == 1);
  CHECK(flag.error().what == kLost.what);
  flag.on_raise([&] { ++woken; });
  CHECK(woken == 2);
}

TEST_CASE("a woken thread sees the error while others are still being woken") {
  AbortFlag flag;
  std::future<std::string> told;
  bool in_time = false;
  flag.on_raise([&] {
    told = std::async(std::launch::async, [&] { return flag.error().what; });
    in_time = told.wait_for(20s) == std::future_status::ready;
  });
  flag.raise(kLost);
  CHECK(in_time);
  CHECK(told.get() == kLost.what);
}
