// Calls that the communicator composes, between processes: dl_all_reduce_shards(), dl_scan().
#include <stdlib.h>

#include <string>

#include "tests/unit/ring/process_world.h"
#include "tests/unit/ring/shard_reference.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;

namespace {

struct Own {
  int first = 0, last = 0;
  std::vector<const void*> in;
};
Own own_of(const ShardValues& values, int rank, int size) {
  Own own;
  dl_shard_range(static_cast<int>(values.size()), rank, size, &own.first, &own.last);
  for (int s = own.first; s < own.last; ++s) {
    own.in.push_back(values[static_cast<std::size_t>(s)].data());
  }
  return own;
}

// The result has the bits of the reference, in the background, too, and in place of a shard.
int check_reduction(dl_comm* comm, int shards, std::size_t count, dl_dtype dtype, dl_op op) {
  const int rank = dl_rank(comm), size = dl_size(comm);
  auto values = shard_values(shards, count, dtype, static_cast<unsigned>(shards));
  const auto expected = shard_reference(values, count, dtype, op);
  Own own = own_of(values, rank, size);
  std::vector<std::byte> out(expected.size()), later(expected.size());
  EXPECT(dl_all_reduce_shards(comm, shards, own.in.data(), out.data(), count, dtype, op) == DL_OK);
  EXPECT(out == expected);
  dl_request* request = nullptr;
  EXPECT(dl_iall_reduce_shards(comm, shards, own.in.data(), later.data(), count, dtype, op,
                               &request) == DL_OK);
  own.in.assign(own.in.size(), nullptr);  // the library has copied the list
  EXPECT(dl_wait(&request) == DL_OK);
  EXPECT(later == expected);
  own = own_of(values, rank, size);
  std::vector<std::byte>& place =
      own.in.empty() ? out : values[static_cast<std::size_t>(own.first)];
  EXPECT(dl_all_reduce_shards(comm, shards, own.in.data(), place.data(), count, dtype, op) ==
         DL_OK);
  EXPECT(place == expected);
  return 0;
}

}  // namespace

TEST_CASE("shards: results have the same bits for any number of ranks and by any transport") {
  for (const char* transport : kTransports) {
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      if (kSanitized && ranks > 3) continue;
      all_well({.ranks = ranks, .transport = transport}, [](int, dl_comm*& comm) {
        for (const int shards : {1, 2, 5, 8, 24}) {
          if (kSanitized && (shards == 1 || shards == 24)) continue;
          for (const std::size_t count : {0UL, 1UL, 333UL, 20011UL}) {
            if (const int code = check_reduction(comm, shards, count, DL_FLOAT32, DL_SUM))
              return code;
          }
        }
        for (const auto& [dtype, op] :
             {std::pair(DL_FLOAT16, DL_AVG), std::pair(DL_BFLOAT16, DL_SUM),
              std::pair(DL_FLOAT64, DL_AVG), std::pair(DL_FLOAT32, DL_MAX),
              std::pair(DL_INT32, DL_AVG), std::pair(DL_UINT8, DL_PRODUCT),
              std::pair(DL_INT64, DL_BXOR)}) {
          if (const int code = check_reduction(comm, 12, 3001, dtype, op)) return code;
        }
        return 0;
      });
    }
  }
}

TEST_CASE("shards: sixteen ranks") {
  all_well({.ranks = 16}, [](int, dl_comm*& comm) {
    if (const int code = check_reduction(comm, 16, 10007, DL_FLOAT32, DL_SUM)) return code;
    return check_reduction(comm, 24, 10007, DL_FLOAT32, DL_AVG);
  });
}

struct Given {
  int shards;
  std::size_t count;
  dl_dtype dtype = DL_FLOAT32;
  dl_op op = DL_SUM;
};
// Rank 1 gives something else than rank 0.
void check_difference(const Given& one, const Given& other) {
  for (const char* transport : kTransports) {
    all_well({.ranks = 3, .transport = transport}, [&](int rank, dl_comm*& comm) {
      const Given& given = rank == 1 ? other : one;
      const auto values = shard_values(given.shards, given.count, given.dtype, 1);
      std::vector<std::byte> out(given.count * dl_dtype_bytes(given.dtype));
      const auto result =
          dl_all_reduce_shards(comm, given.shards, own_of(values, rank, 3).in.data(), out.data(),
                               given.count, given.dtype, given.op);
      EXPECT((result == DL_ERR_MISMATCH || result == DL_ERR_PEER_LOST));
      const std::string said = dl_last_error(comm);
      EXPECT((result == DL_ERR_PEER_LOST ||
              said.find("gave different counts, types, operations or numbers of shards") !=
                  said.npos));
      return 0;
    });
  }
}

TEST_CASE("shards: ranks that differ in shards, counts, types or operations learn it") {
  for (const std::size_t count : {100UL, 5000UL}) {  // every rank gets everything; in slices
    const Given one{8, count};
    for (const Given& other :
         {Given{4, count}, Given{2, count}, Given{8, count - 1}, Given{8, 1}, Given{8, 6000},
          Given{8, count, DL_FLOAT32, DL_AVG}, Given{8, count, DL_FLOAT64}}) {
      check_difference(one, other);
      if (kSanitized && count == 5000) break;
    }
  }
}

TEST_CASE("shards: wrong arguments do nothing, and a call of a single rank is no different") {
  for (const int ranks : {1, 2}) {
    all_well({.ranks = ranks}, [](int rank, dl_comm*& comm) {
      float a[8] = {}, b[4] = {};
      const void* four[] = {a, a, a, a};
      const void* none[] = {nullptr, a, a, a};
      const void* overlaps[] = {b, a + 1, a + 1, a + 1};
      const auto call = [&](int shards, const void* const* in, void* out, std::size_t count,
                            dl_dtype dtype = DL_FLOAT32, dl_op op = DL_SUM) {
        return dl_all_reduce_shards(comm, shards, in, out, count, dtype, op);
      };
      EXPECT(call(0, four, b, 4) == DL_ERR_INVALID);
      EXPECT(call(DL_MOST_SHARDS + 1, four, b, 4) == DL_ERR_INVALID);
      EXPECT(call(4, nullptr, b, 4) == DL_ERR_INVALID);
      EXPECT(call(4, none, b, 4) == DL_ERR_INVALID);
      EXPECT(call(4, four, nullptr, 4) == DL_ERR_INVALID);
      EXPECT(call(4, overlaps, a, 4) == DL_ERR_INVALID);
      EXPECT(std::string(dl_last_error(comm)).find("overlaps") != std::string::npos);
      EXPECT(call(4, four, b, SIZE_MAX / 2) == DL_ERR_INVALID);
      EXPECT(call(4, four, b, SIZE_MAX / 4 / DL_MOST_SHARDS) == DL_ERR_INVALID);
      EXPECT(call(4, four, b, 4, static_cast<dl_dtype>(77)) == DL_ERR_INVALID);
      EXPECT(call(4, four, b, 4, DL_FLOAT32, DL_BAND) == DL_ERR_UNSUPPORTED);
      int first = 0, last = 0;
      EXPECT(dl_shard_range(4, 2, 2, &first, &last) == DL_ERR_INVALID);
      EXPECT(dl_shard_range(4, 0, 2, nullptr, &last) == DL_ERR_INVALID);
      EXPECT(dl_shard_range(5, 1, 2, &first, &last) == DL_OK);
      EXPECT((first == 2 && last == 5));
      EXPECT(call(4, four, b, 4) == DL_OK);
      return 0;
    });
  }
}

namespace {

int check_scans(dl_comm* comm, std::size_t count, dl_dtype dtype, dl_op op) {
  const int rank = dl_rank(comm), size = dl_size(comm);
  auto values = shard_values(size, count, dtype, 5);  // of ranks
  std::vector<std::vector<std::byte>> prefixes{values[0]};
  for (int r = 1; r < size; ++r) {
    const std::array<const void*, 2> both{prefixes.back().data(),
                                          values[static_cast<std::size_t>(r)].data()};
    std::vector<std::byte> next(values[0].size());
    reduce(both, next.data(), count, dtype, op, 0);
    prefixes.push_back(std::move(next));
  }
  auto& own = values[static_cast<std::size_t>(rank)];
  const auto given = own;
  const auto& before = rank > 0 ? prefixes[static_cast<std::size_t>(rank) - 1] : given;
  std::vector<std::byte> out(own.size(), std::byte{7});
  EXPECT(dl_scan(comm, own.data(), out.data(), count, dtype, op) == DL_OK);
  EXPECT(out == prefixes[static_cast<std::size_t>(rank)]);
  dl_request* request = nullptr;
  EXPECT(dl_iexscan(comm, own.data(), out.data(), count, dtype, op, &request) == DL_OK);
  EXPECT(dl_wait(&request) == DL_OK);
  EXPECT(out == (rank > 0 ? before : prefixes[0]));  // rank 0's stays
  EXPECT(own == given);
  EXPECT(dl_exscan(comm, own.data(), own.data(), count, dtype, op) == DL_OK);
  EXPECT(own == before);
  own = given;
  EXPECT(dl_iscan(comm, own.data(), own.data(), count, dtype, op, &request) == DL_OK);
  EXPECT(dl_wait(&request) == DL_OK);
  EXPECT(own == prefixes[static_cast<std::size_t>(rank)]);
  return 0;
}

}  // namespace

TEST_CASE("scans: each rank gets the values up to its own, or up to the one before") {
  for (const char* transport : kTransports) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      if (kSanitized && ranks > 3) continue;
      all_well({.ranks = ranks, .transport = transport}, [](int, dl_comm*& comm) {
        for (const std::size_t count : {0UL, 1UL, 100UL, 2049UL, 70001UL}) {
          if (const int code = check_scans(comm, count, DL_FLOAT32, DL_SUM)) return code;
        }
        for (const auto& [dtype, op] :
             {std::pair(DL_FLOAT16, DL_SUM), std::pair(DL_FLOAT64, DL_MAX),
              std::pair(DL_UINT8, DL_PRODUCT)}) {
          if (const int code = check_scans(comm, 5001, dtype, op)) return code;
        }
        return 0;
      });
    }
  }
}

TEST_CASE("scans: ranks that differ learn it, and an average has no meaning") {
  all_well({.ranks = 2}, [](int rank, dl_comm*& comm) {
    std::vector<float> values(9000, 1.0F);
    float nothing = 1;
    EXPECT(dl_exscan(comm, &nothing, rank == 0 ? nullptr : &nothing, 1, DL_FLOAT32, DL_SUM) ==
           DL_OK);
    EXPECT(dl_scan(comm, values.data(), values.data(), 4, DL_FLOAT32, DL_AVG) ==
           DL_ERR_UNSUPPORTED);
    const auto result = dl_scan(comm, values.data(), values.data(), values.size(), DL_FLOAT32,
                                rank == 0 ? DL_SUM : DL_MAX);
    EXPECT((result == DL_ERR_MISMATCH || result == DL_ERR_PEER_LOST));
    const std::string said = dl_last_error(comm);
    EXPECT((result == DL_ERR_PEER_LOST ||
            said.find("scan: rank 0 and rank 1 gave different counts, types or operations") !=
                said.npos ||
            said.find("scan: rank 1 and rank 0 gave different counts, types or operations") !=
                said.npos));
    return 0;
  });
}

// Each rank adds up all values itself, and gets them by way of the other ranks: DLAUNCH_VERIFY
// finds that one has other sums, but cannot tell which rank has changed a value.
TEST_CASE("shards: where values pass from rank to rank, no rank is named for another sum") {
  ::setenv("DLAUNCH_VERIFY", "results", 1);
  for (const bool ring : {false, true}) {
    CAPTURE(ring);
    ::setenv("DLAUNCH_PLAN", ring ? "all_gather::ring" : "", 1);
    Together<3> found;
    all_well({.ranks = 3, .transport = "tcp"}, [&](int rank, dl_comm*& comm) {
      const auto add = [](const void* in, void* inout, std::size_t count, dl_dtype, void* wrong) {
        for (std::size_t i = 0; i < count; ++i) {
          static_cast<int*>(inout)[i] += static_cast<const int*>(in)[i] + (wrong != nullptr);
        }
        return 0;
      };
      dl_op op{};
      EXPECT(dl_op_create(add, 1, rank == 2 ? &rank : nullptr, &op) == DL_OK);
      const int own = 1;
      const void* const in[] = {&own};
      int sum = 0;
      EXPECT(dl_all_reduce_shards(comm, 3, in, &sum, 1, DL_INT32, op) == DL_OK);
      const dl_result verified = dl_verify(comm);
      found.come(rank);
      EXPECT(verified == DL_ERR_CORRUPT);
      EXPECT(dl_peer_lost(comm) == (ring || rank == 2 ? -1 : 2));
      const bool named = std::string(dl_last_error(comm)).find("another rank") == std::string::npos;
      EXPECT(named == !ring);
      return 0;
    });
  }
  ::unsetenv("DLAUNCH_PLAN");
  ::unsetenv("DLAUNCH_VERIFY");
}
