// Members come and leave between commits, and the commits that each holds afterwards.
#include <doctest/doctest.h>

#include "thread_world.h"

using namespace dlaunch;

namespace {

// A step that every rank takes part in: x grows by one, whatever the number of ranks.
struct Counter {
  std::vector<double> x = std::vector<double>(1000);
  double steps = 0;

  explicit Counter(Member& m) {
    m.state.replicated("x", x);
    m.state.value("steps", steps);
  }
  void step(Member& m) {
    std::vector<double> share(1000, m.rank() == 0 ? 1.0 : 0.0);
    m.all_reduce(share);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += share[i];
    ++steps;
  }
  bool right() const { return x.front() == steps && x.back() == steps; }
};

}  // namespace

TEST_CASE("change: a newcomer in a dead member's place gets the last commit; nothing is lost") {
  Job job;
  Meeting made(3);
  const auto end = [&](Member& m, Counter& counter) {
    while (counter.steps < 10) {
      counter.step(m);
      m.state.commit();
    }
    CHECK(counter.right());
    CHECK(counter.steps == 10);
    m.state.finish();
  };
  const Body newcomer = [&](Member& m) {
    Counter counter(m);
    counter.x.assign(1000, 555);
    m.state.sync();
    CHECK(counter.steps == 5);
    CHECK(counter.right());
    end(m, counter);
  };
  job.start({0, 1, 2}, [&](Member& m) {
    Counter counter(m);
    std::vector<dl::Change> changes;
    m.state.on_change([&](const dl::Change& c) { changes.push_back(c); });
    m.state.sync();
    while (counter.steps < 5) {
      counter.step(m);
      m.state.commit();
    }
    made.come();  // commit 5 has ended on all
    if (m.slot == 1) {
      job.replace(1, newcomer);
      throw Killed();
    }
    CHECK_THROWS_AS(counter.step(m), dl::PeerLost);
    counter.x.front() = 99;  // half a step
    m.state.recover();
    CHECK(counter.steps == 5);
    CHECK(counter.right());
    CHECK(changes.size() == 1);
    CHECK(changes.at(0).size == 3);
    CHECK(changes.at(0).round == 2);
    end(m, counter);
    CHECK(m.state.committed().round == 2);
    CHECK(m.state.committed().number == 10);
  });
  CHECK(job.ends(0) == std::vector<std::string>{""});
  CHECK(job.ends(1) == std::vector<std::string>{"killed", ""});
  CHECK(job.ends(2) == std::vector<std::string>{""});
  CHECK(job.launcher.versions[0] == 5);
}

TEST_CASE("change: a commit that only one has made is taken from it, or made again without it") {
  for (const bool it_lives : {true, false}) {
    CAPTURE(it_lives);
    Job job;
    Meeting done(3);
    job.start({0, 1, 2}, [&](Member& m) {
      Counter counter(m);
      m.state.sync();
      for (int i = 0; i < 4; ++i) {
        counter.step(m);
        if (i < 3 || m.slot == 1) m.state.commit(DL_STATE_SPANNED);
      }
      done.come();
      // Rank 1 has commit 4, the others have not.
      if (m.slot == (it_lives ? 2 : 1)) throw Killed();
      CHECK_THROWS_AS(counter.step(m), dl::PeerLost);
      m.state.recover();
      CHECK(counter.steps == (it_lives ? 4 : 3));
      CHECK(counter.right());
      CHECK(m.size() == 2);
      counter.step(m);
      m.state.commit();
      m.state.finish();
    });
    CHECK(job.ends(0) == std::vector<std::string>{""});
    CHECK(job.ends(1) == std::vector<std::string>{it_lives ? "" : "killed"});
  }
}

TEST_CASE("change: a member that was left out with its own commit follows the others") {
  // Slot 2 commits 4 alone, and misses the round in which the others make another commit 4.
  Job job;
  Meeting made(2);
  job.start({0, 1}, [&](Member& m) {
    Counter counter(m);
    m.state.sync();
    for (int i = 0; i < 3; ++i) {
      counter.step(m);
      m.state.commit();
    }
    if (m.slot == 1) {
      counter.step(m);
      counter.x.assign(1000, -1);
      m.state.commit(DL_STATE_SPANNED);
      made.come();
      job.launcher.remove(1);  // frozen
      job.launcher.wait_for_round(2);
      // It comes back as it was.
      job.launcher.add(1);
      m.state.recover();
      CHECK(counter.right());
      CHECK(counter.steps >= 4);
      return;
    }
    counter.step(m);
    made.come();
    m.state.recover();
    CHECK(m.size() == 1);
    CHECK(counter.steps == 3);
    counter.step(m);
    m.state.commit();
    while (!job.launcher.over) {  // the other one is back
      counter.step(m);
      m.state.commit();
    }
    m.state.recover();
    CHECK(m.size() == 2);
    CHECK(counter.right());
  });
  CHECK(job.ends(0) == std::vector<std::string>{""});
  CHECK(job.ends(1) == std::vector<std::string>{""});
}

TEST_CASE("change: all leave a round at the same commit, so that growing redoes no step") {
  Job job;
  Meeting asked(2);
  std::atomic<int> begun = 0, done = 0;
  const Body grow = [&](Member& m) {
    Counter counter(m);
    bool started = false;
    dl::run_elastic(m.state, [&] {
      if (counter.steps == 40) return false;
      if (m.rank() == 0 && counter.steps == 10 && m.size() == 2 && !started) {
        started = true;
        job.launcher.add(5);
        asked.come();
      }
      ++begun;
      counter.step(m);
      ++done;
      return true;
    });
    CHECK(counter.right());
    CHECK(m.size() == 3);
  };
  job.start({0, 1}, grow);
  asked.come();
  job.start({5}, grow);
  for (const int slot : {0, 1, 5}) CHECK(job.ends(slot) == std::vector<std::string>{""});
  CHECK(begun == done);  // no step was in vain
}

TEST_CASE("change: wrong memory on one rank is found, reported and replaced") {
  Warnings warnings;
  Job job;
  job.start({0, 1, 2}, [&](Member& m) {
    Counter counter(m);
    m.state.sync();
    counter.step(m);
    if (m.slot == 0) counter.x[17] = 0.5;  // a bit has flipped
    m.state.commit();
    counter.step(m);
    job.launcher.end_round();
    m.state.commit();
    m.state.recover();
    CHECK(counter.right());
    CHECK(counter.x[17] == 2);
  });
  for (const int slot : {0, 1, 2}) CHECK(job.ends(slot) == std::vector<std::string>{""});
  CHECK(warnings.count(
            "rank 0: the replicated memory at commit 2 of round 1 differs from that of 2") == 1);
}

TEST_CASE("change: exceptions of callbacks come out of the call") {
  Job job;
  job.start({0}, [&](Member& m) {
    int x = 0;
    m.state.value("x", x);
    m.state.on_change([](const dl::Change&) { throw std::runtime_error("not today"); });
    m.state.sync();
    m.state.recover();
  });
  CHECK(job.ends(0) == std::vector<std::string>{"not today"});
}
