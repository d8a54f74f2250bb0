// Commit, restore and sync in one round.
#include <numeric>

#include <doctest/doctest.h>

#include "elastic/state/rounds.h"
#include "thread_world.h"

using namespace dlaunch;

TEST_CASE("commit: all begin with rank 0's memory, and go back to the last commit") {
  Job job;
  std::vector<std::vector<double>> ends(3);
  job.start({0, 1, 2}, [&](Member& m) {
    std::vector<double> w(1000, m.rank() + 1.0);
    int step = m.rank();
    m.state.replicated("w", w);
    m.state.value("step", step);
    m.state.sync();
    ends[m.slot].push_back(w.back());
    for (; step < 3; ++step) {
      w[999] += 1;
      m.state.commit();
      ends[m.slot].push_back(static_cast<double>(m.state.committed().number));
    }
    w[999] = 77;
    step = 77;
    m.state.restore();
    ends[m.slot].push_back(w[999] + step);
    ends[m.slot].push_back(static_cast<double>(m.state.committed().round));
    m.state.finish();
  });
  for (const int slot : {0, 1, 2}) {
    CHECK(job.ends(slot) == std::vector<std::string>{""});
    // Committed within the loop, before ++step.
    CHECK(ends[static_cast<std::size_t>(slot)] == std::vector<double>{1, 1, 2, 3, 4 + 2, 1});
  }
}

TEST_CASE("commit: every n-th call, and what is left at the end") {
  Job job({.commit_every = 3});
  std::vector<std::uint64_t> numbers;
  job.start({0, 1}, [&](Member& m) {
    int x = 0;
    m.state.value("x", x);
    m.state.sync();
    for (x = 1; x <= 7; ++x) {
      m.state.commit();
      if (m.rank() == 0) numbers.push_back(m.state.committed().number);
    }
    m.state.finish();
    if (m.rank() == 0) numbers.push_back(m.state.committed().number);
    x = 0;
    m.state.restore();
    if (m.rank() == 0) numbers.push_back(static_cast<std::uint64_t>(x));
  });
  CHECK(job.ends(0) == std::vector<std::string>{""});
  CHECK(numbers == std::vector<std::uint64_t>{0, 0, 1, 1, 1, 2, 2, 3, 8});
}

TEST_CASE("commit: no rank commits before all others have committed the step before") {
  // Also when the program's step itself does not span all ranks.
  Job job;
  std::atomic<int> entered = 0;
  std::atomic<bool> early = false;
  job.start({0, 1}, [&](Member& m) {
    int x = 0;
    m.state.value("x", x);
    m.state.sync();
    for (int i = 1; i <= 200; ++i) {
      if (m.rank() == 1) ++entered;
      m.state.commit();
      if (m.rank() == 0 && entered < i) early = true;
    }
  });
  CHECK(job.ends(0) == std::vector<std::string>{""});
  CHECK_FALSE(early);
}

TEST_CASE("commit: a step that has spanned all ranks needs no further message") {
  Job job;
  std::atomic<bool> alone = false;
  Meeting meeting(2);
  job.start({0, 1}, [&](Member& m) {
    int x = 0;
    m.state.value("x", x);
    m.state.sync();
    if (m.rank() == 0) {
      m.state.commit(DL_STATE_SPANNED);
      alone = m.state.committed().number == 1;
    }
    meeting.come();  // rank 1 was not in the commit
  });
  CHECK(job.ends(1) == std::vector<std::string>{""});
  CHECK(alone);
}

TEST_CASE("commit: ranks at different steps get an error that says so") {
  Job job;
  job.start({0, 1}, [&](Member& m) {
    int x = 0;
    m.state.value("x", x);
    m.state.sync();
    if (m.rank() == 1) m.state.commit(DL_STATE_SPANNED);
    m.state.commit();
  });
  CHECK(job.ends(0).front() == "rank 0 makes commit 1, but another rank commit 2");
  CHECK(job.ends(1).front() == "rank 1 makes commit 2, but another rank commit 1");
}

TEST_CASE("sync: different memory is an error that names both ranks, on every rank") {
  Job job;
  job.start({0, 1, 2}, [&](Member& m) {
    std::vector<float> w(m.rank() == 2 ? 200 : 100);
    m.state.replicated("w", w);
    m.state.sync();
  });
  for (const int slot : {0, 1, 2}) {
    CHECK(job.ends(slot).front() ==
          "rank 2 has registered replicated 'w' (800 bytes), rank 0 replicated 'w' (400 bytes)");
  }
}

TEST_CASE("sync: different terms are an error, too") {
  Job job;
  const TempFolder folder;
  job.start({0, 1}, [&](Member& m) {
    int x = 0;
    m.state.value("x", x);
    m.state.snapshots(folder.path.string(), 2 + m.rank(), 1);
    m.state.sync();
  });
  CHECK(job.ends(0).front() ==
        "rank 1 has registered snapshots every 3 commits, rank 0 snapshots every 2 commits");
}

TEST_CASE("sync: samplers with different settings are an error, too") {
  Job job;
  job.start({0, 1}, [&](Member& m) {
    dl::ElasticSampler sampler(m.state, "s", 100, 10, 7 + static_cast<std::uint64_t>(m.rank()));
    m.state.sync();
  });
  CHECK(job.ends(0).front() ==
        "rank 1 has registered sampler 's': 100 samples, batches of 10, seed 8, rank 0 sampler "
        "'s': 100 samples, batches of 10, seed 7");
}

TEST_CASE("sync: samplers with different virtual shards are an error, too") {
  Job job;
  job.start({0, 1}, [&](Member& m) {
    dl::ElasticSampler sampler(m.state, "s", 100, 10);
    sampler.set_shards(4 + m.rank());
    CHECK_THROWS_AS(sampler.set_shards(4), dl::Error);
    m.state.sync();
  });
  CHECK(job.ends(0).front() ==
        "rank 1 has registered sampler 's': 5 virtual shards, rank 0 sampler 's': 4 virtual "
        "shards");
}

TEST_CASE("rounds: a failure on one rank is that of all, whatever its kind") {
  Job job;
  std::atomic<int> alike = 0;
  job.start({0, 1}, [&](Member& m) {
    for (int code = 0; code <= static_cast<int>(kLastErrc); ++code) {
      const Error own{.code = static_cast<Errc>(code), .what = "why"};
      const auto agreed = agree(m.rounds, m.rank() == 1 ? Result<void>(own) : Result<void>());
      alike += !agreed && agreed.error().code == own.code;
    }
  });
  job.wait();
  CHECK(alike == 2 * (static_cast<int>(kLastErrc) + 1));
}

TEST_CASE("commit: one that needs no other rank succeeds after a rank is lost") {
  struct Kind {
    bool in_place;
    const char* verify;
  };
  for (const Kind kind : {Kind{false, "off"}, Kind{true, "off"}, Kind{true, "full"}}) {
    CAPTURE(kind.in_place);
    CAPTURE(kind.verify);
    ::setenv("DLAUNCH_VERIFY", kind.verify, 1);
    Job job({.in_place = kind.in_place});
    Meeting done(3);
    std::atomic<int> committed = 0;
    job.start({0, 1, 2}, [&](Member& m) {
      std::vector<double> w(10);
      m.state.replicated("w", w);
      m.state.sync();
      m.all_reduce(w);
      if (kind.in_place) m.state.update();
      done.come();
      if (m.slot == 2) throw Killed();
      int none = 0;
      CHECK(dl_recv(m.comm(), &none, 1, DL_INT32, 2, 0) == DL_ERR_PEER_LOST);
      m.state.commit(DL_STATE_SPANNED);
      committed += m.state.committed().number == 1;
    });
    for (const int slot : {0, 1}) CHECK(job.ends(slot).at(0) == "");
    ::unsetenv("DLAUNCH_VERIFY");
    CHECK(committed.load() == 2);
  }
}
