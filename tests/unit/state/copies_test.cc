#include "elastic/state/copies.h"

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

Copy& commit(Copies& copies, const Copy* kept, Version version) {
  Copy& copy = copies.take_other_than(kept);
  copy.id = {version, 1};
  REQUIRE(copy.make_room(kReplicated, 8));
  copy.objects[kReplicated].whole = true;
  copy.committed = true;
  return copy;
}

}  // namespace

TEST_CASE("copies: the last two commits are held") {
  Copies copies;
  const Copy* last = nullptr;
  for (std::uint64_t number = 1; number <= 5; ++number) {
    last = &commit(copies, last, {1, number});
    CHECK(copies.newest() == Version{1, number});
    CHECK(copies.holdings().size() == (number == 1 ? 1 : 2));
    if (number > 1) CHECK(copies.find({{1, number - 1}, 1}) != nullptr);
  }
  CHECK(copies.newest_before({{1, 5}, 1})->id.version == Version{1, 4});
  CHECK(copies.newest_before({{1, 4}, 1}) == nullptr);
}

TEST_CASE("copies: one that a snapshot reads is left alone, and two others are held") {
  Copies copies;
  copies.make_place_for_snapshots();
  Copy& read = commit(copies, nullptr, {1, 1});
  read.busy = true;
  const Copy* last = &read;
  for (std::uint64_t number = 2; number <= 6; ++number) {
    last = &commit(copies, last, {1, number});
    CHECK(read.id.version.number == 1);
    if (number > 2) CHECK(copies.find({{1, number - 1}, 1}) != nullptr);
  }
}

TEST_CASE("copies: a copy for another commit replaces one that is no fallback") {
  // A commit that only this rank had, and the one before the one that is chosen.
  Copies copies;
  const Copy& older = commit(copies, nullptr, {1, 4});
  commit(copies, &older, {1, 6});
  copies.take_other_than(copies.newest_before({{1, 5}, 1}));
  CHECK(copies.holdings().size() == 1);
  CHECK(copies.newest() == Version{1, 4});
}

TEST_CASE("copies: a half-filled copy is not held; no memory is no crash") {
  Copies copies;
  Copy& copy = commit(copies, nullptr, {1, 1});
  REQUIRE(copy.make_room(shard_of(0), 100));
  CHECK(copy.holding().objects.size() == 1);
  CHECK_FALSE(copy.make_room(shard_of(1), SIZE_MAX));
  copy.forget_all_but(std::vector<ObjectId>{});
  CHECK(copy.objects.empty());
}
