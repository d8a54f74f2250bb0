// Whole jobs with random deaths and changes of size, compared with the result of one rank alone.
#include <doctest/doctest.h>

#include "training.h"

using namespace dlaunch;

TEST_CASE(
    "run_elastic: whatever dies, the result is that of one rank, and no sample is used twice") {
  const auto expected = alone();
  for (unsigned seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    Job job({.commit_every = seed % 2 == 0 ? 3 : 1});
    Chaos chaos(job, seed);
    std::mutex mutex;
    int ended = 0, right = 0;
    Body body;
    body = [&](Member& m) {
      Trained trained;
      m.state.replicated("w", trained.w);
      m.state.replicated("used", trained.used);
      std::vector<double> opt(static_cast<std::size_t>(m.rank()) % 2 + 1, 1);
      m.state.sharded("opt", opt);
      dl::ElasticSampler sampler(m.state, "samples", kSamples, kBatch, 1);
      dl::run_elastic(m.state, [&] {
        if (sampler.epoch() == kEpochs) return false;
        chaos.strike(m, body);
        const auto batch = sampler.next();
        Part part(batch.mine);
        m.all_reduce(part.sums);
        chaos.strike(m, body);
        m.all_reduce(part.used);
        trained.apply(part.sums, part.used);
        for (double& x : opt) ++x;
        return true;
      });
      const std::lock_guard lock(mutex);
      ++ended;
      right += is_right(trained, expected);
    };
    job.start({0, 1, 2, 3}, body);
    job.wait();
    CHECK(ended >= 1);
    CHECK(right == ended);
    for (const int slot : {0, 1, 2, 3}) {
      CHECK((job.ends(slot).back().empty() || job.ends(slot).back() == "killed"));
    }
  }
}

TEST_CASE("run_elastic: any error except a lost peer ends it, and is returned") {
  Job job;
  job.start({0}, [&](Member& m) {
    int steps = 0;
    m.state.value("steps", steps);
    dl::run_elastic(m.state, [&]() -> bool {
      if (++steps == 3) throw std::logic_error("step 3 is wrong");
      return true;
    });
  });
  CHECK(job.ends(0) == std::vector<std::string>{"step 3 is wrong"});
}

TEST_CASE("run_elastic: an exception of an on_change function is the end at once") {
  Job job;
  int steps = 0;
  job.start({0}, [&](Member& m) {
    m.state.value("steps", steps);
    m.state.on_change([](const dl::Change&) { throw std::runtime_error("not today"); });
    dl::run_elastic(m.state, [&] {
      if (++steps == 2) job.launcher.end_round();
      return steps < 5;
    });
  });
  CHECK(job.ends(0) == std::vector<std::string>{"not today"});
  CHECK(steps == 2);
}

TEST_CASE("run_elastic: no member leaves while another still needs its memory") {
  // One dies at the end, when all have made the last commit. The others are still there for the
  // newcomer.
  Job job;
  Meeting made(3);
  std::atomic<int> ended = 0, steps_done = 0;
  Body body;
  std::atomic<bool> died = false;
  body = [&](Member& m) {
    int steps = 0;
    m.state.value("steps", steps);
    dl::run_elastic(m.state, [&] {
      if (steps == 5) {
        made.come();
        if (m.slot == 2 && !died.exchange(true)) {
          job.replace(2, body);
          throw Killed();
        }
        return false;
      }
      ++steps;
      ++steps_done;
      std::vector<int> x(1);
      m.all_reduce(x);
      return true;
    });
    CHECK(m.state.committed().number == 5);
    ++ended;
  };
  job.start({0, 1, 2}, body);
  job.wait();
  CHECK(ended == 3);
  CHECK(steps_done == 15);  // the newcomer had none to do
}
