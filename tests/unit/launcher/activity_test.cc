#include "launcher/node/watch/activity.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// Looks each 200 ms while the worker uses this share of a CPU, and returns how long it has been
// quiet at the end.
class Worker {
 public:
  Duration run(Duration time, double share) {
    TimePoint active{};
    for (Duration passed{}; passed < time; passed += 200ms) {
      now_ += 200ms;
      used_ += 200ms * share;
      const auto ticks = std::chrono::floor<std::chrono::duration<int, std::centi>>(used_);
      active = activity_.look(now_, {.cpu = ticks, .said = said_});
    }
    return now_ - active;
  }
  void say() { said_ = now_; }
  void lose_process(Duration cpu) { used_ -= cpu; }

 private:
  Activity activity_;
  TimePoint now_ = kStart;
  std::chrono::duration<double> used_ = 100s;
  std::optional<TimePoint> said_;
};

}  // namespace

TEST_CASE("a worker that computes is active, also on a tenth of a CPU") {
  CHECK(Worker().run(60s, 1) <= 1s);
  CHECK(Worker().run(60s, 0.1) <= 1s);
  CHECK(Worker().run(60s, 16) <= 1s);
}

TEST_CASE("a worker that only waits is quiet, also if a thread looks around now and then") {
  CHECK(Worker().run(60s, 0) >= 58s);
  CHECK(Worker().run(60s, 0.01) >= 58s);
}

TEST_CASE("output and a short burst of work are activity") {
  Worker worker;
  CHECK(worker.run(30s, 0) >= 28s);
  worker.say();
  CHECK(worker.run(5s, 0) == 5s);
  CHECK(worker.run(1s, 0.5) <= 1s);
  CHECK(worker.run(10s, 0) >= 9s);
}

TEST_CASE("a process that ends is activity, although its CPU time is gone") {
  Worker worker;
  CHECK(worker.run(30s, 0) >= 28s);
  worker.lose_process(20s);
  CHECK(worker.run(2s, 0) <= 2s);
}
