#include "ring/shm/staging_pool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <map>
#include <thread>

#include <doctest/doctest.h>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPoolBytes = 8192;

struct CountedReaders : StagingReaders {
  std::atomic<std::uint64_t> read{0};
  bool have_read(std::uint64_t count) const override { return read >= count; }
};

// The pool of rank 0 of two, and what it has passed to rank 1.
struct PoolWorld {
  explicit PoolWorld(bool both = false)
      : pool(both ? std::make_unique<StagingPool>(2, kPoolBytes)
                  : std::make_unique<StagingPool>(first, std::vector<const char*>{first, first},
                                                  kPoolBytes,
                                                  std::vector<std::shared_ptr<void>>{})) {
    pool->pass_by([this](int rank, std::uint64_t number, int descriptor) {
      CHECK(rank == 1);
      CHECK(!passed.contains(number));  // once
      passed[number].reset(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    });
  }
  StagingPool::Borrowed borrow(const std::shared_ptr<CountedReaders>& user) {
    auto borrowed = pool->borrow(user, {1}, steady_now() + 20s, abort);
    REQUIRE(borrowed);
    return *borrowed;
  }

  char first[kPoolBytes] = {};
  std::map<std::uint64_t, UniqueFd> passed;
  AbortFlag abort;
  std::unique_ptr<StagingPool> pool;
};

}  // namespace

TEST_CASE("staging pool: communicators that do not run at once share memory") {
  PoolWorld world;
  for (int i = 0; i < 100; ++i) {
    const auto user = std::make_shared<CountedReaders>();
    const auto borrowed = world.borrow(user);
    CHECK(borrowed.number == 0);
    CHECK(borrowed.memory == world.first);
    user->read = 5;
    world.pool->give_back(borrowed.number, 5);
  }
  CHECK(world.pool->made() == 1);
  CHECK(world.passed.empty());
}

TEST_CASE("staging pool: concurrent communicators have their own memory, and later ones reuse it") {
  PoolWorld world;
  const auto a = std::make_shared<CountedReaders>(), b = std::make_shared<CountedReaders>();
  const auto first = world.borrow(a), second = world.borrow(b);
  CHECK(first.memory != second.memory);
  CHECK(world.passed.contains(second.number));
  world.pool->give_back(first.number, 0);
  world.pool->give_back(second.number, 0);
  for (int i = 0; i < 10; ++i) {
    const auto one = world.borrow(a), other = world.borrow(b);
    world.pool->give_back(one.number, 0);
    world.pool->give_back(other.number, 0);
  }
  CHECK(world.pool->made() == 2);
}

TEST_CASE("staging pool: memory that ranks still read is not given to another communicator") {
  PoolWorld world;
  const auto slow = std::make_shared<CountedReaders>(), next = std::make_shared<CountedReaders>();
  const auto first = world.borrow(slow);
  world.pool->give_back(first.number, 3);
  // Its own next call knows by itself which slots are free.
  CHECK(world.borrow(slow).number == first.number);
  world.pool->give_back(first.number, 3);
  CHECK(world.borrow(next).number != first.number);
  CHECK(world.pool->made() == 2);
}

TEST_CASE("staging pool: memory that is read soon is waited for") {
  // For 2 ms, in which a thread of a busy machine may not run.
  bool waited = false;
  for (int i = 0; i < 100 && !waited; ++i) {
    PoolWorld world;
    const auto slow = std::make_shared<CountedReaders>(), next = std::make_shared<CountedReaders>();
    const auto first = world.borrow(slow);
    world.pool->give_back(first.number, 3);
    std::thread reader([&] { slow->read = 3; });
    waited = world.borrow(next).number == first.number;
    reader.join();
  }
  CHECK(waited);
}

TEST_CASE(
    "staging pool: memory of a call that has failed is never used again, not even by its own") {
  PoolWorld world;
  const auto user = std::make_shared<CountedReaders>();
  const auto failed = world.borrow(user);
  world.pool->give_back(failed.number, StagingPool::kNeverRead);
  user->read = ~std::uint64_t{0};
  for (int i = 0; i < 3; ++i) {
    const auto borrowed = world.borrow(user);
    CHECK(borrowed.number != failed.number);
    world.pool->give_back(borrowed.number, 0);
  }
  CHECK(world.pool->made() == 2);
}

TEST_CASE("staging pool: a rank that waits for readers learns that its communicator is over") {
  PoolWorld world;
  const auto slow = std::make_shared<CountedReaders>();
  const auto first = world.borrow(slow);
  world.pool->give_back(first.number, 3);
  world.abort.raise({.code = Errc::peer_lost, .what = "rank 1 was lost", .rank = 1});
  const auto borrowed =
      world.pool->borrow(std::make_shared<CountedReaders>(), {1}, steady_now() + 20s, world.abort);
  REQUIRE_FALSE(borrowed);
  CHECK(borrowed.error().code == Errc::peer_lost);
}

TEST_CASE(
    "staging pool: what is passed is read by the other rank, and written only where both may") {
  for (const bool both : {false, true}) {
    CAPTURE(both);
    PoolWorld world(both), other(both);
    const auto user = std::make_shared<CountedReaders>(), more = std::make_shared<CountedReaders>();
    auto borrowed = world.borrow(user);
    if (!both) borrowed = world.borrow(more);  // number 0 is there without being passed
    borrowed.memory[100] = 'x';
    std::thread later(
        [&] { other.pool->take(0, borrowed.number, world.passed.at(borrowed.number)); });
    char* const theirs = other.pool->memory_of(0, borrowed.number, steady_now() + 20s, other.abort);
    later.join();
    REQUIRE(theirs != nullptr);
    CHECK(theirs[100] == 'x');
    const UniqueFd& descriptor = world.passed.at(borrowed.number);
    void* const writable =
        ::mmap(nullptr, kPoolBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
    CHECK((writable != MAP_FAILED) == both);
    if (!both) continue;
    ::munmap(writable, kPoolBytes);
    theirs[100] = 'y';
    CHECK(borrowed.memory[100] == 'y');
  }
}

TEST_CASE("staging pool: a missing descriptor has a reason, and one that is late has none") {
  PoolWorld world;
  world.pool->take(1, 4, UniqueFd());
  CHECK(world.pool->memory_of(1, 4, steady_now() + 20s, world.abort) == nullptr);
  CHECK(world.pool->why_not(1, 4).find("ulimit -n") != std::string::npos);
  CHECK(world.pool->memory_of(1, 5, steady_now() + 10ms, world.abort) == nullptr);
  CHECK(world.pool->why_not(1, 5).empty());
}

}  // namespace dlaunch
