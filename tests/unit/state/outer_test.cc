// An outer optimizer in a state: a job that goes on from it gets the bits of an undisturbed one.
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dlaunch/outer.hpp>
#include <doctest/doctest.h>

#include "thread_world.h"

using namespace dlaunch;

namespace {

// Parameters of each rank by its number, and the memory that all ranks share.
struct Outcome {
  std::map<int, std::vector<float>> parameters;
  std::vector<std::byte> shared;
};

// A member's communicator, for the C++ API.
class Borrowed {
 public:
  explicit Borrowed(const Member& m) : comm_(dl::Communicator::adopt(m.comm())) {}
  ~Borrowed() { (void)comm_.release(); }
  dl::Communicator& operator*() const { return comm_; }

 private:
  mutable dl::Communicator comm_;
};

dl::OuterOptions four_bits_delayed() {
  dl::OuterOptions options;
  options.inner_steps = 5;
  options.codec = DL_CODEC_INT4;
  options.delay = 3;
  options.mixing = 0.5;
  return options;
}

void train_alone(std::vector<float>& w, int rank, std::uint64_t step) {
  for (std::size_t i = 0; i < w.size(); ++i) {
    const auto noise =
        static_cast<float>((i * 31 + step * 17 + static_cast<std::size_t>(rank)) % 9);
    w[i] -= 0.01F * (w[i] - noise);
  }
}

// A whole job: goes on with what is in the folder, unless it is "", up to so many steps.
Outcome train(const std::string& folder, int ranks, std::uint64_t to) {
  Job job;
  Outcome outcome;
  std::mutex mutex;
  std::vector<int> slots;
  for (int slot = 0; slot < ranks; ++slot) slots.push_back(slot);
  job.start(slots, [&](Member& m) {
    std::vector<float> w(600, 1.0F);
    const Borrowed comm(m);
    {
      dl::Outer outer(*comm, {w}, four_bits_delayed());
      m.state.replicated("outer", outer.shared());
      m.state.own("residual", outer.residual());
      m.state.own("w", std::span(w));
      if (!folder.empty()) m.state.snapshots(folder, 1, 1);
      m.state.sync();
      while (outer.steps() < to) {
        train_alone(w, m.rank(), outer.steps());
        outer.step();
        outer.settle();
        m.state.commit();
      }
      m.state.finish();
      const std::lock_guard lock(mutex);
      outcome.parameters[m.rank()] = w;
      outcome.shared.assign(outer.shared().begin(), outer.shared().end());
    }
  });
  for (const int slot : slots) CHECK(job.ends(slot).back() == "");
  return outcome;
}

}  // namespace

TEST_CASE("outer: a job that goes on from its state gets the bits of an undisturbed one") {
  const Outcome whole = train("", 3, 24);
  CHECK(whole.parameters.at(0) != whole.parameters.at(1));
  for (const std::uint64_t stop : {6UL, 9UL}) {  // sent in 5 and applied in 8; applied
    const TempFolder folder;
    const std::string path = folder.path.string();
    train(path, 3, stop);
    const Outcome parts = train(path, 3, 24);
    CHECK(parts.parameters == whole.parameters);
    CHECK(parts.shared == whole.shared);
  }
}

TEST_CASE("outer: a job goes on with another number of ranks, and each has parameters") {
  const TempFolder folder;
  const std::string path = folder.path.string();
  const Outcome two = train(path, 2, 9);
  const Outcome four = train(path, 4, 9);
  CHECK(four.shared == two.shared);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(four.parameters.at(rank) == two.parameters.at(rank % 2));
  }
  CHECK(train(path, 1, 12).parameters.size() == 1);
  CHECK(train(path, 3, 20).parameters.size() == 3);
}
