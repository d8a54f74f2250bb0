// The C++ header by itself, under the warnings that a user's compiler may be told to take for
// errors, in a world of one.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <dlaunch/elastic.hpp>
#include <doctest/doctest.h>

namespace {

struct Pair {
  std::int32_t key = 0;
  float value = 0;
};

}  // namespace

TEST_CASE("elastic in C++: a state of every kind of memory") {
  auto comm = dl::Communicator::init();
  dl::State made(comm);
  std::vector<float> w = {1, 2};
  std::vector<Pair> pairs(3);
  int step = 0;
  made.replicated("w", w);
  made.value("step", step);
  made.sharded("pairs", pairs);
  dl::State state = std::move(made);
  dl::ElasticSampler sampler(state, "samples", 5, 2);
  dl::run_elastic(state, [&] {
    if (step == 3) return false;
    state.update();
    w[0] += static_cast<float>(sampler.next().global);
    ++step;
    return true;
  });
  CHECK(w[0] == 6);
  CHECK((sampler.epoch() == 1 && sampler.position() == 0));
  w[0] = 0;
  state.restore();
  CHECK(w[0] == 6);
  CHECK(state.committed().number == 3);
}

TEST_CASE("elastic in C++: an array that is cut evenly is whole for any number of ranks") {
  const std::vector<Pair> all = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}};
  const std::vector<std::span<const Pair>> old = {
      std::span(all).first(2), {}, std::span(all).subspan(2)};
  std::vector<Pair> together;
  for (int rank = 0; rank < 4; ++rank) {
    for (const Pair& pair : dl::reshard_evenly<Pair>(old, rank, 4)) together.push_back(pair);
  }
  REQUIRE(together.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) CHECK(together[i].key == all[i].key);
}
