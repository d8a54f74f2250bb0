// Pieces are damaged and ranks die while a newcomer gets the state.
#include <doctest/doctest.h>

#include "elastic/state/plan.h"
#include "thread_world.h"

using namespace dlaunch;

namespace {

constexpr std::size_t kCount = 5 * kPieceBytes / sizeof(double) + 100;  // six pieces

struct Big {
  std::vector<double> x = std::vector<double>(kCount);
  int steps = 0;
  explicit Big(Member& m) {
    m.state.replicated("x", x);
    m.state.value("steps", steps);
  }
  void fill(int step) {
    steps = step;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 1000) * step;
  }
  bool is(int step) const {
    if (steps != step) return false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] != static_cast<double>(i % 1000) * step) return false;
    }
    return true;
  }
};

// Slot 2 dies after two commits and is replaced; `broken` prepares a survivor's sends before that.
struct Refill {
  Job job;
  std::atomic<int> newcomer_has = 0;

  void run(const std::function<void(Member&)>& broken) {
    const Body newcomer = [this](Member& m) {
      Big big(m);
      m.sync_until_done();
      newcomer_has = big.is(2) ? 2 : big.is(1) ? 1 : -1;
      m.state.finish();
    };
    job.start({0, 1, 2}, [=, this](Member& m) {
      Big big(m);
      m.state.sync();
      for (int step = 1; step <= 2; ++step) {
        big.fill(step);
        m.state.commit();
      }
      dl_barrier(m.comm());
      if (m.slot == 2) {
        job.replace(2, newcomer);
        throw Killed();
      }
      broken(m);
      m.state.recover();
      CHECK(big.is(2));
      m.state.finish();
    });
    job.wait();
  }
};

}  // namespace

TEST_CASE("pull: a damaged piece is fetched again from another holder, and reported") {
  Warnings warnings;
  Refill refill;
  refill.run([](Member& m) {
    if (m.slot != 0) return;
    m.rounds.on_send = [](int number, int, std::vector<std::byte>& bytes) {
      if (number == 2) bytes[bytes.size() / 2] ^= std::byte{1};
    };
  });
  CHECK(refill.newcomer_has == 2);
  CHECK(refill.job.ends(2) == std::vector<std::string>{"killed", ""});
  // Pieces 0, 2, 4 come from rank 0.
  CHECK(warnings.count("rank 2: piece 2 of the state arrived damaged from rank 0; fetching it from "
                       "rank 1") == 1);
}

TEST_CASE("pull: a piece that stays damaged is an error for all") {
  Warnings warnings;
  Refill refill;
  const auto corrupt = [](Member& m) {
    m.rounds.on_send = [](int, int, std::vector<std::byte>& bytes) {
      bytes.back() ^= std::byte{1};
    };
  };
  refill.run(corrupt);
  for (const int slot : {0, 1, 2}) {
    CHECK(refill.job.ends(slot).back().find("arrived damaged at rank 2") != std::string::npos);
    CHECK(refill.job.ends(slot).back().find("the last of 4 tries") != std::string::npos);
  }
}

TEST_CASE("pull: a source that dies ends the round, and the next has other sources") {
  Refill refill;
  refill.run([](Member& m) {
    if (m.slot != 1) return;
    auto& rounds = m.rounds;
    rounds.on_send = [&rounds](int number, int, std::vector<std::byte>&) {
      if (number == 2) rounds.die();
    };
  });
  CHECK(refill.newcomer_has == 2);
  CHECK(refill.job.ends(0) == std::vector<std::string>{""});
  CHECK(refill.job.ends(1) == std::vector<std::string>{"killed"});
  CHECK(refill.job.ends(2) == std::vector<std::string>{"killed", ""});
}

TEST_CASE("pull: when the last holder dies meanwhile, the commit before it is used, never less") {
  Job job;
  std::atomic<int> got = 0;
  job.start({0, 1}, [&](Member& m) {
    Big big(m);
    m.state.sync();
    big.fill(1);
    m.state.commit();
    big.fill(2);
    if (m.slot == 0) m.state.commit(DL_STATE_SPANNED);
    auto& rounds = m.rounds;
    if (m.slot == 0) {
      rounds.on_send = [&](int number, int, std::vector<std::byte>&) {
        if (number == 3) rounds.die();
      };
    }
    job.launcher.end_round();
    m.state.recover();  // rank 0 dies in the first round of it
    got = big.is(1) ? 1 : -1;
    CHECK(m.size() == 1);
    CHECK(m.state.committed().number == 1);
  });
  CHECK(job.ends(0) == std::vector<std::string>{"killed"});
  CHECK(job.ends(1) == std::vector<std::string>{""});
  CHECK(got == 1);
}
