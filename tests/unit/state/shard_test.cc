// Memory that differs from rank to rank.
#include <numeric>

#include <doctest/doctest.h>

#include "thread_world.h"

using namespace dlaunch;

namespace {

constexpr std::uint64_t kShardCount = 1003;

// An array of kShardCount numbers cut evenly; each step adds to every element.
struct Sharded {
  std::vector<double> mine;
  double steps = 0;

  explicit Sharded(Member& m) {
    m.state.value("steps", steps);
    m.state.sharded("mine", mine);
  }
  // What a program does when there is nothing yet: registered empty, cut by hand before the sync.
  static std::vector<double> start(int rank, int size) {
    std::uint64_t first = 0, last = 0;
    dl_even_share(kShardCount, rank, size, &first, &last);
    std::vector<double> part(last - first);
    std::iota(part.begin(), part.end(), static_cast<double>(first));
    return part;
  }
  explicit Sharded(Member& m, std::vector<double> begin) : mine(std::move(begin)) {
    m.state.value("steps", steps);
    m.state.sharded("mine", mine);
  }
  void step() {
    for (double& x : mine) x += 1000;
    ++steps;
  }
  bool right(Member& m) const {
    auto expected = start(m.rank(), m.size());
    for (double& x : expected) x += 1000 * steps;
    return mine == expected;
  }
};

Body member_of(Job& job, int dies, int at, bool replaced, std::atomic<int>& checks) {
  return [&job, dies, at, replaced, &checks](Member& m) {
    const Body newcomer = [&job, &checks](Member& n) {
      Sharded sharded(n);  // knows nothing of sizes
      n.state.sync();
      while (sharded.steps < 6) {
        sharded.step();
        n.state.commit();
      }
      if (sharded.right(n)) ++checks;
      n.state.finish();
    };
    Sharded sharded(m, Sharded::start(m.rank(), m.size()));
    m.state.sync();
    for (;;) {
      try {
        while (sharded.steps < 6) {
          if (m.slot == dies && sharded.steps == at) {
            if (replaced) job.replace(dies, newcomer);
            throw Killed();
          }
          sharded.step();
          m.state.commit();
        }
        m.state.finish();
        break;
      } catch (const dl::PeerLost&) {
        m.state.recover();
      }
    }
    if (sharded.right(m)) ++checks;
  };
}

}  // namespace

TEST_CASE("shard: a replaced rank gets its shard from its neighbour") {
  for (const int dies : {0, 1, 3}) {
    CAPTURE(dies);
    std::atomic<int> checks = 0;
    Job job;
    job.start({0, 1, 2, 3}, member_of(job, dies, 3, true, checks));
    for (const int slot : {0, 1, 2, 3}) CHECK(job.ends(slot).back() == "");
    CHECK(checks == 4);
  }
}

TEST_CASE("shard: with a rank fewer the array is divided again, and nothing of it is lost") {
  for (const int dies : {0, 2, 3}) {
    CAPTURE(dies);
    std::atomic<int> checks = 0;
    Job job;
    job.start({0, 1, 2, 3}, member_of(job, dies, 3, false, checks));
    job.wait();
    CHECK(checks == 3);
  }
}

TEST_CASE("shard: any number of ranks can leave a round that all end with the same commit") {
  for (const bool spanned : {false, true}) {
    CAPTURE(spanned);
    Job job;
    Meeting all(4);
    std::atomic<int> over = 0, right = 0;
    job.start({0, 1, 2, 3}, [&](Member& m) {
      Sharded sharded(m, Sharded::start(m.rank(), m.size()));
      m.state.sync();
      sharded.step();
      if (m.slot == 0) job.launcher.end_round();
      m.state.commit(spanned ? DL_STATE_SPANNED : 0);
      over += m.state.round_over();
      all.come();
      if (m.slot != 2) throw Killed();
      m.state.recover();
      right += m.size() == 1 && sharded.right(m) && sharded.steps == 1;
    });
    CHECK(job.ends(2).back() == "");
    CHECK(over == 4);
    CHECK(right == 1);
  }
}

TEST_CASE("shard: the state survives two neighbours with two replicas, not with one") {
  for (const int replicas : {1, 2}) {
    CAPTURE(replicas);
    Job job({.shard_replicas = replicas});
    Meeting both(2);
    std::atomic<int> right = 0;
    job.start({0, 1, 2, 3}, [&](Member& m) {
      Sharded sharded(m, Sharded::start(m.rank(), m.size()));
      m.state.sync();
      sharded.step();
      m.state.commit();
      dl_barrier(m.comm());
      if (m.slot == 1 || m.slot == 2) {
        both.come();
        throw Killed();
      }
      m.state.recover();
      // One of the two may have been seen dead before the other: recover() took both rounds.
      right += sharded.right(m) && sharded.steps == 1;
    });
    if (replicas == 2) {
      CHECK(job.ends(0).back() == "");
      CHECK(right == 2);
    } else {
      CHECK(job.ends(0).back() == job.ends(3).back());
      CHECK(job.ends(0).back() ==
            "state is lost: commit 1 of round 1 lacks the shard of rank 1 of 4, and there is no "
            "snapshot");
    }
  }
}

TEST_CASE("shard: divided shards have replicas before the next commit has ended") {
  Job job;
  std::atomic<int> right = 0;
  job.start({0, 1, 2, 3}, [&](Member& m) {
    Sharded sharded(m, Sharded::start(m.rank(), m.size()));
    m.state.sync();
    sharded.step();
    m.state.commit();
    dl_barrier(m.comm());
    if (m.slot == 1) throw Killed();
    m.state.recover();
    right += sharded.right(m) && sharded.steps == 1;
    auto& rounds = m.rounds;
    if (m.slot == 2) rounds.on_send = [&](int, int, std::vector<std::byte>&) { rounds.die(); };
    sharded.step();
    try {
      m.state.commit();
    } catch (const dl::PeerLost&) {
    }
    m.state.recover();
    right += sharded.right(m) && sharded.steps == 1;
  });
  CHECK(job.ends(2).back() == "killed");
  CHECK(job.ends(3).back() == "");
  CHECK(right == 3 + 2);
}

TEST_CASE("shard: the program's own way of cutting") {
  // Each rank keeps what belongs to its rank number modulo the size.
  Job job;
  std::atomic<int> right = 0;
  job.start({0, 1, 2}, [&](Member& m) {
    std::vector<int> mine;
    for (int i = m.rank(); i < 20; i += m.size()) mine.push_back(i);
    m.state.sharded<int>("mine", mine,
                         [](std::span<const std::span<const int>> old, int rank, int size) {
                           std::vector<int> part;
                           for (int i = rank; i < 20; i += size) {
                             const auto was = old[static_cast<std::size_t>(i) % old.size()];
                             part.push_back(was[static_cast<std::size_t>(i) / old.size()]);
                           }
                           return part;
                         });
    m.state.sync();
    dl_barrier(m.comm());
    if (m.slot == 0) throw Killed();
    m.state.recover();
    std::vector<int> expected;
    for (int i = m.rank(); i < 20; i += m.size()) expected.push_back(i);
    right += mine == expected;
  });
  job.wait();
  CHECK(right == 2);
}

TEST_CASE("shard: memory that grows between commits is kept in its new size") {
  Job job;
  std::atomic<int> right = 0;
  const auto length = [](int rank) { return static_cast<std::size_t>(10 + 1000 * rank); };
  job.start({0, 1, 2, 3}, [&](Member& m) {
    std::vector<int> mine;  // nothing at first
    m.state.sharded<int>("mine", mine, [](auto old, int rank, int size) {
      std::vector<int> all;
      for (std::size_t i = 0; i < old.size(); ++i) {
        if (static_cast<int>(i) * size / static_cast<int>(old.size()) != rank) continue;
        all.insert(all.end(), old[i].begin(), old[i].end());
      }
      return all;
    });
    m.state.sync();
    m.state.commit();
    mine.assign(length(m.rank()), m.rank());
    m.state.place_shard("mine", mine);
    m.state.commit();
    mine.assign(length(m.rank()) * 2, -1);  // never committed
    m.state.place_shard("mine", mine);
    m.state.restore();
    right += mine == std::vector<int>(length(m.rank()), m.rank());
    m.state.commit();
    dl_barrier(m.comm());
    if (m.slot == 1) throw Killed();
    m.state.recover();
    std::vector<int> expected;
    const std::vector<std::vector<int>> kept = {{0, 1}, {2}, {3}};
    for (const int rank : kept[static_cast<std::size_t>(m.rank())]) {
      expected.insert(expected.end(), length(rank), rank);
    }
    right += mine == expected;
    CHECK_THROWS_WITH(m.state.place_shard("other", mine), "the state has no sharded 'other'");
    m.state.finish();
  });
  for (const int slot : {0, 2, 3}) CHECK(job.ends(slot).back() == "");
  CHECK(right == 4 + 3);
}

TEST_CASE("shard: a reshard function that fails ends the sync on all ranks") {
  Job job;
  job.start({0, 1, 2}, [&](Member& m) {
    std::vector<int> mine(4);
    m.state.sharded<int>("mine", mine, [](auto, int rank, int) -> std::vector<int> {
      if (rank == 1) throw std::runtime_error("I cannot cut this");
      return {};
    });
    m.state.sync();
    dl_barrier(m.comm());
    if (m.slot == 0) throw Killed();
    m.state.recover();
  });
  CHECK(job.ends(1).back() == "rank 1: the reshard function returned DL_ERR_ABORTED");
  CHECK(job.ends(2).back() == "I cannot cut this");
}

TEST_CASE("shard: without a reshard function another number of ranks is an error") {
  Job job;
  job.start({0, 1, 2}, [&](Member& m) {
    std::vector<int> mine(4);
    m.state.sharded("mine", mine, nullptr);
    m.state.sync();
    dl_barrier(m.comm());
    if (m.slot == 0) throw Killed();
    m.state.recover();
  });
  for (const int slot : {1, 2}) {
    CHECK(job.ends(slot).back().ends_with(
        "'mine' was divided for 3 ranks and must be divided for 2, but "
        "has no reshard function"));
  }
}
