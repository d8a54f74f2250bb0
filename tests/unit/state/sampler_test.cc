#include "elastic/state/sampler.h"

#include <algorithm>
#include <random>

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("sampler: even shares follow each other and differ by at most one") {
  for (std::uint64_t count = 0; count <= 40; ++count) {
    for (int size = 1; size <= 9; ++size) {
      std::uint64_t at = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Share share = even_share(count, rank, size);
        CHECK(share.first == at);
        const auto n = share.last - share.first, each = count / static_cast<std::uint64_t>(size);
        CHECK((n == each || n == each + 1));
        at = share.last;
      }
      CHECK(at == count);
    }
  }
  const auto huge = even_share(~std::uint64_t{0}, 2, 3);
  CHECK(huge.last == ~std::uint64_t{0});
}

TEST_CASE("sampler: an order has all samples, and depends on seed and epoch") {
  const auto order = epoch_order(1000, 7, 3);
  auto sorted = order;
  std::ranges::sort(sorted);
  for (std::uint32_t i = 0; i < 1000; ++i) REQUIRE(sorted[i] == i);
  CHECK(order == epoch_order(1000, 7, 3));
  CHECK(order != epoch_order(1000, 7, 4));
  CHECK(order != epoch_order(1000, 8, 3));
  // The same on every machine: jobs may be continued elsewhere.
  CHECK(epoch_order(6, 1, 0) == std::vector<std::uint32_t>{0, 3, 5, 1, 2, 4});
}

TEST_CASE("sampler: any sequence of sizes and steps back uses each sample of an epoch once") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const auto samples = static_cast<std::uint32_t>(1 + random() % 60);
    const std::uint64_t batch = 1 + random() % 20;
    Sampler sampler(samples, batch, static_cast<std::uint64_t>(trial));
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> used(samples);
      while (sampler.position().epoch == epoch) {
        const auto before = sampler.position();
        if (random() % 4 == 0) {  // a step that is lost
          sampler.next(0, 3);
          sampler.go_on_from(before);
        }
        const int size = 1 + static_cast<int>(random() % 5);
        std::uint64_t global = 0, together = 0;
        for (int rank = 0; rank < size; ++rank) {
          sampler.go_on_from(before);
          const auto part = sampler.next(rank, size);
          for (const auto sample : part.mine) ++used[sample];
          together += part.mine.size();
          global = part.global;
        }
        CHECK(together == global);
        CHECK(global <= batch);
      }
      CHECK(std::ranges::count(used, 1) == samples);
    }
  }
}

TEST_CASE("sampler: after a commit of more samples than there are the next epoch begins") {
  Sampler sampler(6, 4, 1);
  for (const std::uint64_t taken : {6, 9, 1000}) {
    sampler.go_on_from({.epoch = 2, .samples = taken});
    CHECK((sampler.position().epoch == 3 && sampler.position().samples == 0));
  }
  sampler.go_on_from({.epoch = 2, .samples = 5});
  CHECK(sampler.next(0, 1).global == 1);
}

TEST_CASE("sampler: with virtual shards the parts of shards do not depend on the number of ranks") {
  std::mt19937 random(8);
  for (int trial = 0; trial < 100; ++trial) {
    const auto samples = static_cast<std::uint32_t>(1 + random() % 60);
    const int shards = 1 + static_cast<int>(random() % 9);
    const std::uint64_t batch = 1 + random() % 20;
    const auto sampler = [&] {
      Sampler made(samples, batch, 4);
      made.set_shards(shards);
      return made;
    };
    Sampler alone = sampler();
    const auto whole = alone.next(0, 1);
    for (int size = 1; size <= shards + 1; ++size) {
      std::vector<std::uint32_t> together;
      for (int rank = 0; rank < size; ++rank) {
        Sampler of_rank = sampler();
        const auto part = of_rank.next(rank, size);
        together.insert(together.end(), part.mine.begin(), part.mine.end());
        std::vector<std::uint32_t> by_shard;
        const Share own = even_share(static_cast<std::uint64_t>(shards), rank, size);
        for (auto shard = own.first; shard < own.last; ++shard) {
          const auto its = of_rank.of_shard(static_cast<int>(shard));
          CHECK(std::ranges::equal(its, alone.of_shard(static_cast<int>(shard))));
          by_shard.insert(by_shard.end(), its.begin(), its.end());
        }
        CHECK(std::ranges::equal(by_shard, part.mine));
      }
      CHECK(std::ranges::equal(together, whole.mine));
    }
  }
}
