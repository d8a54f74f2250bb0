// Commits that copy nothing.
#include <doctest/doctest.h>

#include "training.h"

using namespace dlaunch;

TEST_CASE("in place: whatever dies, the result is that of one rank, and survivors redo one step") {
  const auto expected = alone();
  for (unsigned seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    Job job({.in_place = true});
    Chaos chaos(job, seed);
    std::mutex mutex;
    int ended = 0, right = 0;
    std::uint64_t redone = 0;  // most of any member, less the rounds it saw
    Body body;
    body = [&](Member& m) {
      Trained trained;
      m.state.replicated("w", trained.w);
      m.state.replicated("used", trained.used);
      dl::ElasticSampler sampler(m.state, "samples", kSamples, kBatch, 1);
      std::uint64_t first = 0, steps = 0, rounds = 0;
      m.state.on_change([&](const dl::Change&) { ++rounds; });
      dl::run_elastic(m.state, [&] {
        if (steps++ == 0) first = m.state.committed().number;
        if (sampler.epoch() == kEpochs) return false;
        chaos.strike(m, body);
        Part part(sampler.next().mine);
        m.all_reduce(part.sums);
        chaos.strike(m, body);
        m.all_reduce(part.used);
        m.state.update();
        trained.apply(part.sums, part.used);
        chaos.strike(m, body);  // the others have, or will have, made this commit
        return true;
      });
      const std::lock_guard lock(mutex);
      ++ended;
      right += is_right(trained, expected);
      // The last call found nothing to do.
      const auto needed = m.state.committed().number - first + 1;
      redone = std::max(redone, steps - std::min(steps, needed + rounds));
    };
    job.start({0, 1, 2, 3}, body);
    job.wait();
    CHECK(ended >= 1);
    CHECK(right == ended);
    CHECK(redone == 0);
  }
}

TEST_CASE("in place: ranks that lose a peer within an update fall back to the last copy") {
  const auto expected = alone();
  Job job({.in_place = true});
  std::atomic<bool> struck = false;
  std::atomic<int> right = 0;
  Body body;
  body = [&](Member& m) {
    Trained trained;
    m.state.replicated("w", trained.w);
    m.state.replicated("used", trained.used);
    dl::ElasticSampler sampler(m.state, "samples", kSamples, kBatch, 1);
    dl::run_elastic(m.state, [&] {
      if (sampler.epoch() == kEpochs) return false;
      Part part(sampler.next().mine);
      m.all_reduce(part.sums);
      m.all_reduce(part.used);
      m.state.update();
      trained.apply(part.sums, part.used);
      if (sampler.epoch() == 2 && m.slot == 1 && !struck.exchange(true)) {
        job.replace(1, body);
        throw Killed();
      }
      if (!struck) m.all_reduce(part.sums);  // what an update should not do
      return true;
    });
    right += is_right(trained, expected);
  };
  job.start({0, 1, 2}, body);
  job.wait();
  CHECK(struck);
  CHECK(right == 3);
}

TEST_CASE("in place: a commit needs an update, and a change that has begun cannot be undone") {
  Job job({.in_place = true});
  job.start({0, 1}, [](Member& m) {
    std::vector<double> w(100), shard(10);
    m.state.replicated("w", w);
    CHECK_THROWS_WITH_AS(m.state.sharded("s", shard), "sharded memory cannot be committed in place",
                         dl::Error);
    m.state.sync();
    CHECK_THROWS_WITH_AS(m.state.commit(), "a commit in place needs an update before it",
                         dl::Error);
    m.state.update();
    w[0] = 1;
    CHECK_THROWS_WITH_AS(m.state.restore(),
                         "memory that an update in place is changing cannot be restored",
                         dl::Error);
    m.state.commit();
    CHECK(m.state.committed().number == 1);
    m.state.restore();
    CHECK(w[0] == 1);
    m.state.finish();
  });
  CHECK(job.ends(0) == std::vector<std::string>{""});
  dl_state_options options;
  dl_state_options_init(&options);
  options.in_place = 1;
  options.commit_every = 2;
  dl_state* state = nullptr;
  CHECK(dl_state_new(reinterpret_cast<dl_comm*>(&options), &options, &state) == DL_ERR_INVALID);
}

TEST_CASE("in place: snapshots are whole commits, and a job continues from the last") {
  const TempFolder folder;
  const auto run = [&](int to) {
    Job job({.in_place = true});
    std::atomic<int> from = -1;
    job.start({0, 1, 2}, [&](Member& m) {
      std::vector<double> w(1000);
      m.state.replicated("w", w);
      m.state.snapshots(folder.path.string(), 2, 2);
      m.state.sync();
      CHECK(std::ranges::count(w, w[0]) == std::ssize(w));
      from = static_cast<int>(w[0]);
      while (w[0] < to) {
        m.state.update();
        for (double& x : w) ++x;
        m.state.commit();
      }
      m.state.finish();
    });
    job.wait();
    return from.load();
  };
  CHECK(run(7) == 0);
  CHECK(run(9) == 7);
  CHECK(run(9) == 9);
}

TEST_CASE("in place: a commit verifies calls that came after its update, too") {
  ::setenv("DLAUNCH_VERIFY", "full", 1);
  Job job({.in_place = true});
  Meeting all(3);
  std::atomic<int> found = 0;
  job.start({0, 1, 2}, [&](Member& m) {
    std::vector<double> w(10);
    m.state.replicated("w", w);
    m.state.sync();
    m.state.update();
    // Another sum on rank 2, in a call that an update should not make.
    const auto add = [](const void* in, void* inout, std::size_t count, dl_dtype, void* wrong) {
      for (std::size_t i = 0; i < count; ++i) {
        static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i] + (wrong != nullptr);
      }
      return 0;
    };
    dl_op op{};
    CHECK(dl_op_create(add, 1, m.rank() == 2 ? &m : nullptr, &op) == DL_OK);
    int sum = 1;
    CHECK(dl_all_reduce(m.comm(), &sum, &sum, 1, DL_INT32, op) == DL_OK);
    try {
      m.state.commit();
    } catch (const dl::Corrupt&) {
      ++found;
    } catch (const dl::Error&) {
    }
    all.come();  // the end of one does not disturb the others' commit
  });
  job.wait();
  ::unsetenv("DLAUNCH_VERIFY");
  CHECK(found == 3);
}
