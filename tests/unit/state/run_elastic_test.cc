// Whole jobs under random deaths and changes of size, against what one rank alone would compute.
#include <random>

#include <doctest/doctest.h>

#include "thread_world.h"

using namespace dlaunch;

namespace {

constexpr std::uint64_t kSamples = 97, kBatch = 10, kEpochs = 4;
constexpr std::size_t kLength = 50;

// Whole numbers, so that sums are exact in any order.
double contribution(std::uint32_t sample, std::size_t i) {
  return static_cast<double>((sample * 7919u + i * 104729u) % 1000);
}

struct Trained {
  std::vector<double> w = std::vector<double>(kLength);
  std::vector<std::uint32_t> used = std::vector<std::uint32_t>(kSamples);  // by all ranks

  void apply(const std::vector<double>& sums) {
    for (std::size_t i = 0; i < kLength; ++i) {
      w[i] = std::fmod(w[i] * 31 + sums[i], 1000003.0);
    }
  }
};

std::vector<double> alone() {
  Sampler sampler(kSamples, kBatch, 1);
  Trained all;
  while (sampler.position().epoch < kEpochs) {
    std::vector<double> sums(kLength);
    for (const auto sample : sampler.next(0, 1).mine) {
      for (std::size_t i = 0; i < kLength; ++i) sums[i] += contribution(sample, i);
    }
    all.apply(sums);
  }
  return all.w;
}

class Chaos {
 public:
  Chaos(Job& job, unsigned seed) : job_(job), random_(seed) {}

  // Called by each member in each step: may be its end.
  void strike(Member& m, const Body& again) {
    const std::lock_guard lock(mutex_);
    if (deaths_left_ == 0 || m.size() == 1 || random_() % 30 != 0 ||
        victims_of_ == m.rounds.round()) {
      return;
    }
    victims_of_ = m.rounds.round();  // one a round, so that somebody is left
    --deaths_left_;
    if (random_() % 3 != 0) job_.replace(m.slot, again);
    throw Killed();
  }

 private:
  Job& job_;
  std::mutex mutex_;
  std::mt19937 random_;
  int deaths_left_ = 6;
  std::uint64_t victims_of_ = 0;
};

}  // namespace

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
        std::vector<double> sums(kLength);
        std::vector<std::uint32_t> used(kSamples);
        for (const auto sample : batch.mine) {
          for (std::size_t i = 0; i < kLength; ++i) sums[i] += contribution(sample, i);
          ++used[sample];
        }
        m.all_reduce(sums);
        chaos.strike(m, body);
        m.all_reduce(used);
        trained.apply(sums);
        for (std::size_t i = 0; i < kSamples; ++i) trained.used[i] += used[i];
        for (double& x : opt) ++x;
        return true;
      });
      const std::lock_guard lock(mutex);
      ++ended;
      right += trained.w == expected &&
               std::ranges::count(trained.used, kEpochs) == static_cast<long>(kSamples);
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

TEST_CASE("run_elastic: an error that is no lost peer is the end, and comes out") {
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

TEST_CASE("run_elastic: nobody leaves while another still needs its memory") {
  // The last one to arrive dies at the end; the others, at the barrier, are still there for it.
  Job job;
  std::atomic<int> ended = 0, steps_done = 0;
  Body body;
  std::atomic<bool> died = false;
  body = [&](Member& m) {
    int steps = 0;
    m.state.value("steps", steps);
    dl::run_elastic(m.state, [&] {
      if (steps == 5) {
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
