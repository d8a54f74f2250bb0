// Newcomers get the state from GPU to GPU. Memory of the host stands for a GPU's. The broadcasts of
// a sync: the first tests NCCL, the second has the memory on GPUs, the third the rest.
#include <doctest/doctest.h>

#include "elastic/state/plan.h"
#include "thread_world.h"

using namespace dlaunch;

namespace {

constexpr std::size_t kWeights = 2 * kPieceBytes / sizeof(double) + 100;  // three pieces

const std::byte* address(const void* at) { return static_cast<const std::byte*>(at); }

// Weights "on a GPU" between two values of the host.
struct Model {
  std::uint64_t seed = 0;
  std::vector<double> w = std::vector<double>(kWeights);
  int steps = 0;
  explicit Model(Member& m, bool on_gpu = true) {
    m.state.value("seed", seed);
    m.state.replicated("w", w);
    m.state.value("steps", steps);
    if (on_gpu) m.rounds.on_gpus = {address(w.data())};
  }
  void fill(int step) {
    seed = 77;
    steps = step;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<double>(i % 1000) * step;
  }
  bool is(int step) const {
    if (seed != 77 || steps != step) return false;
    for (std::size_t i = 0; i < w.size(); ++i) {
      if (w[i] != static_cast<double>(i % 1000) * step) return false;
    }
    return true;
  }
};

// Slots from 2 on die after two commits, together, and are replaced. What a newcomer has then must
// be what it has committed, too.
struct GpuRefill {
  Job job;
  std::atomic<int> pieces = 0, right = 0;
  std::function<void(Member&)> survivor = [](Member&) {}, newcomer = [](Member&) {};
  bool newcomers_gpu = true;

  void run(const std::vector<int>& slots) {
    const Body new_member = [this](Member& m) {
      Model model(m, newcomers_gpu);
      count_pieces(m);
      newcomer(m);
      m.sync_until_done();
      right += model.is(2);
      model.fill(9);
      m.state.restore();
      CHECK(model.is(2));
      m.state.finish();
    };
    auto all_there = std::make_shared<Meeting>(static_cast<int>(slots.size()));
    job.start(slots, [=, this](Member& m) {
      Model model(m);
      m.state.sync();
      for (int step = 1; step <= 2; ++step) {
        model.fill(step);
        m.state.commit();
      }
      all_there->come();
      if (m.slot >= 2) {
        job.replace(m.slot, new_member);
        throw Killed();
      }
      model.fill(3);  // and did not commit it
      count_pieces(m);
      survivor(m);
      m.state.recover();
      right += model.is(2);
      m.state.finish();
    });
    job.wait();
  }

  void count_pieces(Member& m) {
    m.rounds.on_send = [this](int, int, std::vector<std::byte>&) { ++pieces; };
  }
};

}  // namespace

TEST_CASE("by GPU: newcomers get all replicated memory without the host") {
  GpuRefill refill;
  refill.run({0, 1, 2, 3});
  CHECK(refill.right == 4);
  CHECK(refill.pieces == 0);
  CHECK(refill.job.ends(3) == std::vector<std::string>{"killed", ""});
}

TEST_CASE("by GPU: a damaged piece is fetched from another host, and reported") {
  Warnings warnings;
  GpuRefill refill;
  refill.newcomer = [](Member& m) {
    m.rounds.after_broadcast = [](int number, Rounds::Places places) {
      if (number == 2) places[0][kPieceBytes + 5000] ^= std::byte{1};
    };
  };
  refill.run({0, 1, 2});
  CHECK(refill.right == 3);
  CHECK(refill.pieces == 1);
  CHECK(warnings.count("rank 2: piece 1 of the state arrived damaged from rank 0; fetching it from "
                       "rank 1") == 1);
}

TEST_CASE("by GPU: another holder continues with its own commit") {
  GpuRefill refill;
  refill.survivor = [](Member& m) {
    if (m.slot != 1) return;
    m.rounds.after_broadcast = [](int number, Rounds::Places places) {
      if (number == 2) places[0][100] ^= std::byte{1};
    };
  };
  refill.run({0, 1, 2});
  CHECK(refill.right == 3);
  CHECK(refill.pieces == 0);
}

TEST_CASE("by GPU: if NCCL does not connect the GPUs, all goes through the host") {
  GpuRefill refill;
  refill.survivor = refill.newcomer = [](Member& m) { m.rounds.has_nccl = false; };
  refill.run({0, 1, 2});
  CHECK(refill.right == 3);
  CHECK(refill.pieces == 3);
}

TEST_CASE("by GPU: NCCL is not used if a buffer is on the GPU of some ranks only") {
  GpuRefill refill;
  refill.newcomers_gpu = false;
  std::atomic<int> broadcasts = 0;
  refill.survivor =
      refill.newcomer = [&](Member& m) { m.rounds.before_broadcast = [&](int) { ++broadcasts; }; };
  refill.run({0, 1, 2});
  CHECK(refill.right == 3);
  CHECK(refill.pieces == 3);
  CHECK(broadcasts == 0);
}

TEST_CASE("by GPU: a death at any broadcast leaves the others with their commits") {
  for (const int slot : {0, 1}) {
    for (const int number : {1, 2, 3}) {
      CAPTURE(slot);
      CAPTURE(number);
      GpuRefill refill;
      refill.survivor = [&](Member& m) {
        if (m.slot != slot) return;
        m.rounds.before_broadcast = [&, number](int now) {
          if (now == number) m.rounds.die();
        };
      };
      refill.run({0, 1, 2});
      CHECK(refill.right == 2);
      CHECK(refill.pieces == 0);
      CHECK(refill.job.ends(slot) == std::vector<std::string>{"killed"});
      CHECK(refill.job.ends(1 - slot) == std::vector<std::string>{""});
      CHECK(refill.job.ends(2) == std::vector<std::string>{"killed", ""});
    }
  }
}
