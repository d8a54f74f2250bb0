#include "elastic/state/registry.h"

#include <cstring>
#include <numeric>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

template <class T>
Bytes bytes(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

}  // namespace

TEST_CASE("registry: captured memory is restored unchanged") {
  std::vector<char> a = {1, 2, 3}, empty;
  std::vector<double> b = {1.5, -2};
  Registry registry;
  REQUIRE(registry.add_replicated("a", bytes(a)));
  REQUIRE(registry.add_replicated("empty", bytes(empty)));
  REQUIRE(registry.add_replicated("b", bytes(b)));
  std::vector<std::byte> object(registry.replicated_bytes());
  CHECK(object.size() == 32);  // each buffer at a multiple of 16
  REQUIRE(registry.capture_replicated(object));
  const auto a_was = a;
  const auto b_was = b;
  a = {0, 0, 0};
  b = {0, 0};
  REQUIRE(registry.restore_replicated(object));
  CHECK(a == a_was);
  CHECK(b == b_was);
}

TEST_CASE("registry: names are unique, and errors have them") {
  std::vector<int> x(4);
  Registry registry;
  CHECK(registry.add_replicated("x", bytes(x)));
  CHECK(registry.add_sharded("x", bytes(x), 4, {}).error().what ==
        "the state has a buffer 'x' already");
  CHECK(registry.add_replicated("", bytes(x)).error().code == Errc::usage);
  CHECK(registry.add_replicated(std::string(201, 'n'), bytes(x)).error().code == Errc::usage);
  CHECK(registry.add_sharded("y", bytes(x), 5, {}).error().what.find("16 bytes") !=
        std::string::npos);
  CHECK(registry.add_replicated("z", Bytes(static_cast<std::byte*>(nullptr), 4)).error().code ==
        Errc::usage);
}

TEST_CASE("registry: sizes that no memory has, alone or together, are refused") {
  std::vector<int> x(4);
  std::byte* const at = bytes(x).data();
  constexpr std::size_t kHalf = PTRDIFF_MAX / 2 + 1;
  Registry registry;
  const auto refused = [](const Result<void>& added) {
    return !added && added.error().code == Errc::usage &&
           added.error().what.find("more memory than a machine can have") != std::string::npos;
  };
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - 15, std::size_t{PTRDIFF_MAX} + 1}) {
    CHECK(refused(registry.add_replicated("r", Bytes(at, size))));
    CHECK(refused(registry.add_sharded("s", Bytes(at, size), 1, {})));
  }
  REQUIRE(registry.add_replicated("half", Bytes(at, kHalf)));
  CHECK(refused(registry.add_replicated("r", Bytes(at, kHalf))));
  REQUIRE(registry.add_sharded("half shard", Bytes(at, kHalf), 1, {}));
  CHECK(refused(registry.add_sharded("s", Bytes(at, kHalf), 1, {})));
  CHECK(registry.add_replicated("x", bytes(x)));
  CHECK(registry.replicated_bytes() == kHalf + 16);

  Registry cut;
  REQUIRE(cut.add_sharded("y", bytes(x), 1, [&](const OldShards&, int, int) -> Result<Bytes> {
    return Bytes(at, SIZE_MAX);
  }));
  CHECK(refused(cut.restore_shard(std::vector<ConstBytes>(3), 0, 2)));
}

TEST_CASE("registry: the first difference names both ranks") {
  std::vector<int> x(4), y(5);
  Registry one, other;
  REQUIRE(one.add_replicated("x", bytes(x)));
  REQUIRE(other.add_replicated("x", bytes(y)));
  CHECK_FALSE(Registry::difference(std::vector{one.describe(), one.describe()}));
  CHECK(*Registry::difference(std::vector{one.describe(), one.describe(), other.describe()}) ==
        "rank 2 has registered replicated 'x' (20 bytes), rank 0 replicated 'x' (16 bytes)");
  CHECK(*Registry::difference(std::vector{one.describe(), std::string()}) ==
        "rank 1 has registered nothing, rank 0 replicated 'x' (16 bytes)");
}

TEST_CASE("registry: shards of the same cut are copied, others use the reshard function") {
  std::vector<int> x = {1, 2};
  Registry registry;
  std::vector<int> sizes_seen;
  const auto reshard = [&](const OldShards& old, int rank, int size) -> Result<Bytes> {
    CHECK(rank == 1);
    CHECK(size == 2);
    for (const auto shard : old) sizes_seen.push_back(static_cast<int>(shard.size()));
    x.assign(6, 0);
    std::size_t at = 0;
    for (const auto shard : old) {
      if (!shard.empty()) std::memcpy(bytes(x).data() + at, shard.data(), shard.size());
      at += shard.size();
    }
    return bytes(x);
  };
  REQUIRE(registry.add_sharded("x", bytes(x), sizeof(int), reshard));
  const auto shard = [&](std::vector<int> content) {
    x = std::move(content);
    Registry other;
    REQUIRE(other.add_sharded("x", bytes(x), sizeof(int), {}));
    std::vector<std::byte> object(other.shard_bytes());
    REQUIRE(other.capture_shard(object));
    return object;
  };
  const auto a = shard({1, 2}), b = shard({3, 4}), c = shard({5, 6});
  x = {0, 0};
  registry = {};
  REQUIRE(registry.add_sharded("x", bytes(x), sizeof(int), reshard));
  REQUIRE(registry.restore_shard(std::vector<ConstBytes>{{}, b}, 1, 2));
  CHECK(x == std::vector{3, 4});
  CHECK(sizes_seen.empty());
  REQUIRE(registry.restore_shard(std::vector<ConstBytes>{a, b, c}, 1, 2));
  CHECK(x == std::vector{1, 2, 3, 4, 5, 6});
  CHECK(sizes_seen == std::vector{8, 8, 8});
  // The memory has another size than its part now. A rank may hold other parts, too.
  REQUIRE(registry.restore_shard(std::vector<ConstBytes>{a, b}, 1, 2));
  CHECK(sizes_seen == std::vector{8, 8, 8, 0, 8});
}

TEST_CASE(
    "registry: without a function another number of ranks is unsupported; bad shards are errors") {
  std::vector<int> x = {1, 2};
  Registry registry;
  REQUIRE(registry.add_sharded("x", bytes(x), sizeof(int), {}));
  std::vector<std::byte> object(registry.shard_bytes());
  REQUIRE(registry.capture_shard(object));
  const auto result = registry.restore_shard(std::vector<ConstBytes>{object}, 0, 2);
  CHECK(result.error().code == Errc::unsupported);
  CHECK(result.error().what.find("'x' was divided for 1 ranks and must be divided for 2") == 0);
  const ConstBytes cut(object.data(), object.size() - 16);
  CHECK(registry.restore_shard(std::vector{cut}, 0, 1).error().code == Errc::protocol);
}
