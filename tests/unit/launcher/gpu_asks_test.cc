#include "launcher/node/watch/gpu_asks.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// Looks once a second, and asks if it may.
struct Look {
  // Until the next question begins.
  Duration until_asked() {
    const TimePoint from = now;
    while (!asks.may_ask(now) && now - from < 1h) now += 1s;
    asks.begins();
    return now - from;
  }
  std::string answer(GpuAsks::Answer what) {
    return asks.answered(now, what, "took longer than 5 s");
  }

  GpuAsks asks;
  TimePoint now = kStart;
};

}  // namespace

TEST_CASE("gpu asks: one question at a time") {
  Look look;
  CHECK(look.until_asked() == 0s);
  CHECK_FALSE(look.asks.may_ask(look.now + 1h));
  CHECK(look.answer(GpuAsks::Answer::figures).empty());
  CHECK(look.until_asked() == 0s);
}

TEST_CASE("gpu asks: after a slow answer it asks again, and the user learns the end, too") {
  Look look;
  look.until_asked();
  CHECK(look.answer(GpuAsks::Answer::failed) ==
        "no figures of GPUs: asking NVML took longer than 5 s; dlaunch asks again in 10 s");
  CHECK(look.asks.missing());
  CHECK(look.until_asked() == 10s);
  CHECK(look.answer(GpuAsks::Answer::failed).empty());
  CHECK(look.until_asked() == 20s);
  CHECK(look.asks.missing());
  CHECK(look.answer(GpuAsks::Answer::figures) == "figures of GPUs are back");
  CHECK_FALSE(look.asks.missing());
  CHECK(look.until_asked() == 0s);
  CHECK(look.answer(GpuAsks::Answer::figures).empty());
}

TEST_CASE("gpu asks: a driver that fails again and again is asked less and less") {
  Look look;
  for (int i = 0; i < 10; ++i) {
    look.until_asked();
    look.answer(GpuAsks::Answer::failed);
  }
  CHECK(look.until_asked() == 5min);
  look.answer(GpuAsks::Answer::figures);
  look.until_asked();
  look.answer(GpuAsks::Answer::failed);
  CHECK(look.until_asked() == 5min);
  look.answer(GpuAsks::Answer::figures);
  look.now += 1h;
  look.until_asked();
  CHECK_FALSE(look.answer(GpuAsks::Answer::failed).empty());
  CHECK(look.until_asked() == 10s);
}

TEST_CASE("gpu asks: without NVML it asks once, and says nothing") {
  Look look;
  look.until_asked();
  CHECK(look.answer(GpuAsks::Answer::none).empty());
  CHECK(look.asks.missing());
  CHECK_FALSE(look.asks.may_ask(look.now + 1h));
}
