// The C++ header alone, with warnings that a user's compiler may take for errors, in a world of
// one.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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
  std::vector<double> own;
  made.sharded("own", own, [](std::span<const std::span<const double>> old, int rank, int) {
    return std::vector<double>(old.size(), rank);
  });
  std::vector<float> local = {3};
  made.own("local", std::span(local));
  dl::State state = std::move(made);
  dl::ElasticSampler sampler(state, "samples", 5, 2);
  sampler.set_shards(2);
  CHECK_THROWS_AS((void)sampler.shard(2), dl::Error);
  dl::run_elastic(state, [&] {
    if (step == 3) return false;
    state.update();
    const auto batch = sampler.next();
    w[0] += static_cast<float>(batch.global);
    local[0] += 1;
    CHECK(sampler.shard(0).size() + sampler.shard(1).size() == batch.mine.size());
    ++step;
    return true;
  });
  CHECK(w[0] == 6);
  CHECK_THROWS_AS(sampler.set_shards(3), dl::Error);  // the state has synced
  CHECK((sampler.epoch() == 1 && sampler.position() == 0));
  w[0] = local[0] = 0;
  state.restore();
  CHECK(w[0] == 6);
  CHECK(local[0] == 6);
  CHECK(state.committed().number == 3);
}

// A sanitizer reserves more than any such limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("elastic in C++: an epoch whose order has no room is an error") {
  const pid_t child = ::fork();
  if (child == 0) {
    auto comm = dl::Communicator::init();
    dl::State state(comm);
    dl::ElasticSampler sampler(state, "samples", UINT32_MAX, 8);
    state.sync();
    const rlimit limit{.rlim_cur = 1 << 30, .rlim_max = 1 << 30};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      (void)sampler.next();
    } catch (const dl::Error& e) {
      ::_exit(e.code() == DL_ERR_IO && sampler.position() == 0 ? 7 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
}
#endif

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
