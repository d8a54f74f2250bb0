// Operations that a program makes, between processes: dl_op_create().
#include "ring/kernels/program_op.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ring/kernels/reduce.h"
#include "tests/unit/ring/process_world.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;

namespace {

// Affine functions x -> a*x + b modulo 2^32, one after the other: associative, not commutative.
struct Affine {
  std::uint32_t a, b;
  bool operator==(const Affine&) const = default;
};
Affine unpacked(std::uint64_t x) {
  return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(x >> 32)};
}
std::uint64_t packed(Affine x) { return x.a | static_cast<std::uint64_t>(x.b) << 32; }
std::uint64_t after(std::uint64_t first, std::uint64_t then) {
  const Affine f = unpacked(first), g = unpacked(then);
  return packed({g.a * f.a, g.a * f.b + g.b});
}
// Not even associative.
std::uint64_t digest(std::uint64_t a, std::uint64_t b) { return (a ^ b >> 7) * 0x100000001b3 + b; }
std::uint64_t larger_low_half(std::uint64_t a, std::uint64_t b) {
  return (a & 0xffffffff) > (b & 0xffffffff) || ((a & 0xffffffff) == (b & 0xffffffff) && a > b) ? a
                                                                                                : b;
}

using Combine = std::uint64_t(std::uint64_t, std::uint64_t);
struct Made {
  Combine* combine;
  bool commutes;
};
constexpr Made kFunctions[] = {{after, false}, {digest, false}, {larger_low_half, true}};

int apply(const void* in, void* inout, std::size_t count, dl_dtype dtype, void* context) {
  if (dtype != DL_UINT64) return 9;
  const auto* a = static_cast<const std::uint64_t*>(in);
  auto* b = static_cast<std::uint64_t*>(inout);
  const auto combine = reinterpret_cast<Combine*>(context);
  for (std::size_t i = 0; i < count; ++i) b[i] = combine(a[i], b[i]);
  return 0;
}
dl_op op_of(const Made& made) {
  dl_op op = DL_OP_ANY_INT;
  dl_op_create(apply, made.commutes, reinterpret_cast<void*>(made.combine), &op);
  return op;
}

using Values = std::vector<std::uint64_t>;
std::uint64_t drawn_value(int rank, std::size_t i) {
  std::uint64_t x =
      (i + 1) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9;
  x ^= x >> 31;
  return x * 0x94d049bb133111eb;
}
Values drawn_values(int rank, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = drawn_value(rank, i);
  return values;
}
// Of the ranks before `last`, in their order.
Values folded(int last, std::size_t count, Combine* combine) {
  Values all = drawn_values(0, count);
  for (int r = 1; r < last; ++r) {
    for (std::size_t i = 0; i < count; ++i) all[i] = combine(all[i], drawn_value(r, i));
  }
  return all;
}
Values part(const Values& all, std::size_t first, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(first),
          all.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

int check_reductions(dl_comm* comm, const Made& made, std::size_t count) {
  const int rank = dl_rank(comm), size = dl_size(comm), root = size - 1;
  const dl_op op = op_of(made);
  const Values in = drawn_values(rank, count), expected = folded(size, count, made.combine);
  Values out(count);
  EXPECT(dl_all_reduce(comm, in.data(), out.data(), count, DL_UINT64, op) == DL_OK);
  EXPECT(out == expected);
  EXPECT(in == drawn_values(rank, count));
  Values place = in;
  dl_request* request = nullptr;
  EXPECT(dl_iall_reduce(comm, place.data(), place.data(), count, DL_UINT64, op, &request) == DL_OK);
  EXPECT(dl_op_free(op) == DL_OK);  // the call goes on with it
  EXPECT(dl_wait(&request) == DL_OK);
  EXPECT(place == expected);
  const dl_op second = op_of(made);
  Values reduced(rank == root ? count : 0);
  EXPECT(dl_reduce(comm, in.data(), reduced.data(), count, DL_UINT64, second, root) == DL_OK);
  EXPECT((rank != root || reduced == expected));
  EXPECT(dl_scan(comm, in.data(), out.data(), count, DL_UINT64, second) == DL_OK);
  EXPECT(out == folded(rank + 1, count, made.combine));
  EXPECT(dl_exscan(comm, in.data(), out.data(), count, DL_UINT64, second) == DL_OK);
  EXPECT((rank == 0 || out == folded(rank, count, made.combine)));
  // A list: some elements, the rest.
  const std::size_t counts[] = {count / 3, count - count / 3};
  const void* ins[] = {in.data(), in.data() + counts[0]};
  void* outs[] = {out.data(), out.data() + counts[0]};
  EXPECT(dl_all_reduce_list(comm, 2, ins, outs, counts, DL_UINT64, second) == DL_OK);
  EXPECT(out == expected);
  EXPECT(dl_op_free(second) == DL_OK);
  return 0;
}

int check_scatters(dl_comm* comm, const Made& made, std::size_t count) {
  const int rank = dl_rank(comm), size = dl_size(comm);
  const auto n = static_cast<std::size_t>(size), own = static_cast<std::size_t>(rank);
  const dl_op op = op_of(made);
  const Values in = drawn_values(rank, n * count), expected = folded(size, n * count, made.combine);
  Values out(count);
  EXPECT(dl_reduce_scatter(comm, in.data(), out.data(), count, DL_UINT64, op) == DL_OK);
  EXPECT(out == part(expected, own * count, count));
  std::vector<std::size_t> counts(n, count / 2);
  counts[0] = count;
  counts[n - 1] = n > 1 ? count - count / 2 : count;
  const std::size_t first = rank == 0 ? 0 : count + (own - 1) * (count / 2);
  Values different(counts[own]);
  EXPECT(dl_reduce_scatter_v(comm, in.data(), different.data(), counts.data(), DL_UINT64, op) ==
         DL_OK);
  EXPECT(different == part(expected, first, counts[own]));
  EXPECT(dl_op_free(op) == DL_OK);
  return 0;
}

int check_all(dl_comm* comm, std::initializer_list<std::size_t> counts) {
  for (const Made& made : kFunctions) {
    for (const std::size_t count : counts) {
      if (const int code = check_reductions(comm, made, count)) return code;
      if (const int code = check_scatters(comm, made, count)) return code;
    }
  }
  return 0;
}

}  // namespace

TEST_CASE("program op: values are combined in the order of ranks, by any transport") {
  for (const char* transport : kTransports) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      if (kSanitized && ranks > 3) continue;
      all_well({.ranks = ranks, .transport = transport}, [](int, dl_comm*& comm) {
        return check_all(comm, {0, 1, 7, 1000, 40009});
      });
    }
  }
}

TEST_CASE("program op: a ring keeps the order for functions that do not commute") {
  all_well({.ranks = 18, .transport = "tcp"}, [](int, dl_comm*& comm) {
    return check_all(comm, {1, 97, kSanitized ? 503UL : 5003UL});
  });
  for (const char* plan : {"all_reduce::ring", "reduce::ring", "reduce_scatter::ring"}) {
    CAPTURE(plan);
    ::setenv("DLAUNCH_PLAN", plan, 1);
    all_well({.ranks = 3, .transport = "tcp"}, [](int rank, dl_comm*& comm) {
      char text[200] = "";
      const dl_op op = op_of(kFunctions[0]);
      EXPECT(dl_explain(comm, "all_reduce", 5000, DL_UINT64, op, 0, text, sizeof text) == DL_OK);
      const bool rings = std::string(::getenv("DLAUNCH_PLAN")).starts_with("all_reduce");
      EXPECT((std::string(text).find("in the order of ranks") != std::string::npos) == rings);
      EXPECT(dl_explain(comm, "broadcast", 5000, DL_UINT64, op, 0, text, sizeof text) == DL_OK);
      EXPECT(std::string(text).find("in the order of ranks") == std::string::npos);
      return check_all(comm, {1, 97, 5003});
    });
    ::unsetenv("DLAUNCH_PLAN");
  }
}

TEST_CASE("program op: groups and shards") {
  all_well({.ranks = 4}, [](int rank, dl_comm*& comm) {
    dl_comm* group = nullptr;
    EXPECT(dl_split(comm, rank % 2, rank, &group) == DL_OK);
    if (const int code = check_all(group, {1, 2003})) return code;
    dl_finalize(group);
    const dl_op op = op_of(kFunctions[0]);  // associative: the tree's grouping does not matter
    for (const int shards : {2, 7}) {
      int first = 0, last = 0;
      dl_shard_range(shards, rank, 4, &first, &last);
      std::vector<Values> own;
      std::vector<const void*> in;
      for (int s = first; s < last; ++s) own.push_back(drawn_values(s, 3001));
      for (const Values& values : own) in.push_back(values.data());
      Values out(3001);
      EXPECT(dl_all_reduce_shards(comm, shards, in.data(), out.data(), out.size(), DL_UINT64, op) ==
             DL_OK);
      EXPECT(out == folded(shards, out.size(), after));
    }
    return 0;
  });
}

TEST_CASE("program op: a function that fails ends the call on all ranks") {
  for (const char* transport : kTransports) {
    for (const bool commutes : {false, true}) {
      static Together<3> together;
      all_well({.ranks = 3, .transport = transport}, [&](int rank, dl_comm*& comm) {
        // It fails on rank 1.
        dl_op op = DL_OP_ANY_INT;
        EXPECT(dl_op_create([](const void*, void*, std::size_t, dl_dtype,
                               void* fails) -> int { return fails == nullptr ? 0 : 42; },
                            commutes, rank == 1 ? &op : nullptr, &op) == DL_OK);
        std::vector<float> x(400000);  // each rank reduces a slice
        const auto result = dl_all_reduce(comm, x.data(), x.data(), x.size(), DL_FLOAT32, op);
        together.come(rank);
        const std::string said = dl_last_error(comm);
        EXPECT(result == (rank == 1 ? DL_ERR_ABORTED : DL_ERR_PEER_LOST));
        EXPECT((rank == 1 || dl_peer_lost(comm) == 1));
        EXPECT((rank != 1 ||
                said.find("all_reduce #1: the function of its operation returned 42") == 0));
        EXPECT(dl_barrier(comm) == result);
        return 0;
      });
    }
  }
}

TEST_CASE("program op: ranks that give different kinds of operations learn it") {
  constexpr int kMismatch = 50, kLost = 51;
  struct OtherKind {
    std::string name;
    dl_op (*make)();
  };
  const OtherKind other_kinds[] = {{"sum", [] { return DL_SUM; }},
                                   {"function", [] { return op_of(kFunctions[2]); }}};
  for (const char* transport : kTransports) {
    for (const OtherKind& kind : other_kinds) {
      CAPTURE(kind.name);
      const auto codes = run({.ranks = 2, .transport = transport}, [&](int rank, dl_comm*& comm) {
        const dl_op op = rank == 0 ? op_of(kFunctions[0]) : kind.make();
        Values x(100);
        const auto result = dl_all_reduce(comm, x.data(), x.data(), x.size(), DL_UINT64, op);
        if (result == DL_ERR_PEER_LOST) return kLost;
        EXPECT(result == DL_ERR_MISMATCH);
        const std::string said = dl_last_error(comm),
                          call = "called all_reduce(count 100, uint64, ";
        EXPECT(said.find("rank 0 " + call + "function_in_order)") != said.npos);
        EXPECT(said.find("rank 1 " + call + kind.name + ")") != said.npos);
        return kMismatch;
      });
      // One may only learn that the other one has failed.
      CHECK(std::count(codes.begin(), codes.end(), kMismatch) > 0);
      for (const int code : codes) CHECK((code == kMismatch || code == kLost));
    }
  }
}

TEST_CASE("program op: in a world of one an error names the call, and takes no thread down") {
  all_well({.ranks = 1}, [](int rank, dl_comm*& comm) {
    dl_op op = DL_OP_ANY_INT;
    EXPECT(dl_op_create([](const void*, void*, std::size_t, dl_dtype, void*) { return 42; }, 0,
                        nullptr, &op) == DL_OK);
    float x[] = {1, 2}, sum = 0;
    const void* shards[] = {x, x + 1};
    EXPECT(dl_all_reduce_shards(comm, 2, shards, &sum, 1, DL_FLOAT32, op) == DL_ERR_ABORTED);
    EXPECT(std::string(dl_last_error(comm)) ==
           "all_reduce_shards #1: the function of its operation returned 42 on this rank");
    return 0;
  });
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process
  all_well({.ranks = 1}, [](int rank, dl_comm*& comm) {
    dl_op op = DL_OP_ANY_INT;
    EXPECT(dl_op_create_premul_sum(2, &op) == DL_OK);
    double x = 1;
    dl_request* request = nullptr;
    // No machine has memory for so many products.
    EXPECT(dl_ireduce(comm, &x, &x, PTRDIFF_MAX / sizeof x, DL_FLOAT64, op, 0, &request) == DL_OK);
    EXPECT(dl_wait(&request) == DL_ERR_IO);
    return 0;
  });
#endif
}

TEST_CASE("program op: 8-bit floats are rounded once, also over sockets with many ranks") {
  constexpr unsigned char k32 = 0x60, k16 = 0x58, kHalf = 0x30, k24 = 0x5c;  // of E4M3
  all_well({.ranks = 18, .transport = "tcp"}, [&](int rank, dl_comm*& comm) {
    using Bytes = std::vector<unsigned char>;
    const dl_dtype dtype = DL_FLOAT8_E4M3;
    for (const std::size_t count : {1UL, 40UL, 9001UL}) {
      // The sum, 576, is out of range.
      Bytes in(18 * count, k32), out(count);
      EXPECT(dl_all_reduce(comm, in.data(), out.data(), count, dtype, DL_AVG) == DL_OK);
      EXPECT(out == Bytes(count, k32));
      EXPECT(dl_reduce_scatter(comm, in.data(), out.data(), count, dtype, DL_AVG) == DL_OK);
      EXPECT(out == Bytes(count, k32));
      // 16 + 17 * 0.5 = 24.5. Rounded after each rank, it would stay 16.
      in.assign(count, rank == 0 ? k16 : kHalf);
      EXPECT(dl_reduce(comm, in.data(), out.data(), count, dtype, DL_SUM, 3) == DL_OK);
      EXPECT((rank != 3 || out == Bytes(count, k24)));
      const void* ins[] = {in.data()};
      void* outs[] = {out.data()};
      EXPECT(dl_all_reduce_list(comm, 1, ins, outs, &count, dtype, DL_SUM) == DL_OK);
      EXPECT(out == Bytes(count, k24));
      dl_op one = DL_OP_ANY_INT;
      EXPECT(dl_op_create_premul_sum(1, &one) == DL_OK);
      EXPECT(dl_all_reduce(comm, in.data(), out.data(), count, dtype, one) == DL_OK);
      EXPECT(out == Bytes(count, k24));
    }
    return 0;
  });
}

TEST_CASE("program op: averages of float16 stay in range, also over sockets with many ranks") {
  constexpr std::uint16_t k4000 = 0x6bd0;  // 17 of them are more than 65504
  all_well({.ranks = 17, .transport = "tcp"}, [&](int rank, dl_comm*& comm) {
    constexpr std::size_t kCount = 40'000;
    using Halves = std::vector<std::uint16_t>;
    const Halves in(17 * kCount, k4000);
    Halves out(kCount);
    EXPECT(dl_all_reduce(comm, in.data(), out.data(), kCount, DL_FLOAT16, DL_AVG) == DL_OK);
    EXPECT(out == Halves(kCount, k4000));
    out.assign(kCount, 0);
    EXPECT(dl_reduce_scatter(comm, in.data(), out.data(), kCount, DL_FLOAT16, DL_AVG) == DL_OK);
    EXPECT(out == Halves(kCount, k4000));
    EXPECT(dl_reduce(comm, in.data(), out.data(), kCount, DL_FLOAT16, DL_AVG, 5) == DL_OK);
    EXPECT((rank != 5 || out == Halves(kCount, k4000)));
    return 0;
  });
}

namespace {

// Whole numbers and factors of a power of two: every type has the sums exactly.
double factor_of(int rank) { return rank % 2 == 0 ? 0.5 : -2; }
double small_value(int rank, std::size_t i) {
  return static_cast<double>((i + 3 * static_cast<std::size_t>(rank)) % 4);
}
double product_sum(int ranks, std::size_t i) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += factor_of(r) * small_value(r, i);
  return sum;
}

template <class T, class Of>
std::vector<T> filled(std::size_t count, std::size_t first, Of of) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(of(first + i));
  return values;
}

template <class T>
int check_products(dl_comm* comm, std::size_t count, dl_dtype dtype) {
  const int rank = dl_rank(comm), size = dl_size(comm);
  const auto n = static_cast<std::size_t>(size), own = static_cast<std::size_t>(rank);
  const auto mine = [rank](std::size_t i) { return small_value(rank, i); };
  const auto sum = [size](std::size_t i) { return product_sum(size, i); };
  dl_op op = DL_OP_ANY_INT;
  EXPECT(dl_op_create_premul_sum(factor_of(rank), &op) == DL_OK);
  const auto in = filled<T>(count, 0, mine), expected = filled<T>(count, 0, sum);
  std::vector<T> out(count), place = in;
  EXPECT(dl_all_reduce(comm, in.data(), out.data(), count, dtype, op) == DL_OK);
  EXPECT((out == expected && in == filled<T>(count, 0, mine)));
  dl_request* request = nullptr;
  EXPECT(dl_iall_reduce(comm, place.data(), place.data(), count, dtype, op, &request) == DL_OK);
  EXPECT(dl_wait(&request) == DL_OK);
  EXPECT(place == expected);
  place = in;
  T* const result = rank == 0 ? place.data() : nullptr;
  EXPECT(dl_reduce(comm, place.data(), result, count, dtype, op, 0) == DL_OK);
  EXPECT(place == (rank == 0 ? expected : in));
  EXPECT(dl_scan(comm, in.data(), out.data(), count, dtype, op) == DL_OK);
  EXPECT(out == filled<T>(count, 0, [rank](std::size_t i) { return product_sum(rank + 1, i); }));
  const std::size_t counts[] = {count / 3, count - count / 3};
  const void* ins[] = {in.data(), in.data() + counts[0]};
  void* outs[] = {out.data(), out.data() + counts[0]};
  EXPECT(dl_all_reduce_list(comm, 2, ins, outs, counts, dtype, op) == DL_OK);
  EXPECT((out == expected && in == filled<T>(count, 0, mine)));
  const void* shard[] = {in.data()};
  EXPECT(dl_all_reduce_shards(comm, size, shard, out.data(), count, dtype, op) == DL_OK);
  EXPECT(out == expected);
  const auto whole = filled<T>(n * count, 0, mine);
  EXPECT(dl_reduce_scatter(comm, whole.data(), out.data(), count, dtype, op) == DL_OK);
  EXPECT(out == filled<T>(count, own * count, sum));
  EXPECT(dl_op_free(op) == DL_OK);
  return 0;
}

}  // namespace

TEST_CASE("program op: a sum of products multiplies each rank's values by its factor") {
  for (const char* transport : kTransports) {
    for (const int ranks : {1, 2, 3, 4}) {
      if (kSanitized && ranks > 3) continue;
      all_well({.ranks = ranks, .transport = transport}, [](int, dl_comm*& comm) {
        for (const std::size_t count : {0UL, 1UL, 17UL, 30011UL}) {
          if (const int code = check_products<float>(comm, count, DL_FLOAT32)) return code;
          if (const int code = check_products<double>(comm, count, DL_FLOAT64)) return code;
        }
        return 0;
      });
    }
  }
}

TEST_CASE("program op: products are for floats, and differ from sums") {
  CHECK(dl_op_create_premul_sum(2, nullptr) == DL_ERR_INVALID);
  for (const char* transport : kTransports) {
    all_well({.ranks = 2, .transport = transport}, [](int rank, dl_comm*& comm) {
      dl_op op = DL_OP_ANY_INT;
      EXPECT(dl_op_create_premul_sum(2, &op) == DL_OK);
      int whole = 1;
      EXPECT(dl_all_reduce(comm, &whole, &whole, 1, DL_INT32, op) == DL_ERR_UNSUPPORTED);
      EXPECT(std::string(dl_last_error(comm)).find("premul_sum of int32") != std::string::npos);
      float x = 1;
      EXPECT(dl_scan(comm, &x, &x, 1, DL_FLOAT32, op) == DL_OK);
      EXPECT(x == (rank == 0 ? 2 : 4));
      const auto result = dl_all_reduce(comm, &x, &x, 1, DL_FLOAT32, rank == 0 ? op : DL_SUM);
      EXPECT((result == DL_ERR_MISMATCH || result == DL_ERR_PEER_LOST));
      return 0;
    });
  }
}

TEST_CASE("program op: products are rounded once to 16-bit floats, with equal bits by any kernel") {
  const std::uint16_t half[] = {0x3c01, 0x7bff, 0x0001, 0xfc00},
                      brain[] = {0x3f81, 0x7f7f, 0x0001, 0xff80};
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (!use_isa(isa)) continue;
    std::uint16_t out[4];
    scale(half, out, 4, DL_FLOAT16, 1.5);
    CHECK(std::vector(out, out + 4) == std::vector<std::uint16_t>{0x3e02, 0x7c00, 0x0002, 0xfc00});
    scale(brain, out, 4, DL_BFLOAT16, 1.5);
    CHECK(std::vector(out, out + 4) == std::vector<std::uint16_t>{0x3fc2, 0x7f80, 0x0002, 0xff80});
  }
}

TEST_CASE("program op: a factor is rounded to the values' type, as NCCL takes it") {
  const std::uint16_t half = 0x4500, brain = 0x40a0;  // 5
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (!use_isa(isa)) continue;
    std::uint16_t out = 0;
    scale(&half, &out, 1, DL_FLOAT16, 1.0 / 3);
    CHECK(out == 0x3eaa);  // 1.66602; by the factor in binary32: 0x3eab
    scale(&brain, &out, 1, DL_BFLOAT16, 1.0 / 3);
    CHECK(out == 0x3fd6);  // 1.67188; by the factor in binary32: 0x3fd5
  }
}

TEST_CASE("program op: each operation has a number of its own until none is left") {
  OpNumbers first;
  CHECK(first.take(true) == static_cast<dl_op>(16));
  CHECK(first.take(false) == static_cast<dl_op>(19));
  constexpr int kLargest = std::numeric_limits<int>::max();
  OpNumbers last(kLargest - 3);
  CHECK(last.take(true) == static_cast<dl_op>(kLargest - 3));
  CHECK(last.take(false) == static_cast<dl_op>(kLargest));
  CHECK(last.take(true) == std::nullopt);
  CHECK(last.take(false) == std::nullopt);
}

TEST_CASE("program op: arguments, and numbers that no operation has") {
  dl_op op = DL_OP_ANY_INT;
  CHECK(dl_op_create(nullptr, 0, nullptr, &op) == DL_ERR_INVALID);
  CHECK(dl_op_create(apply, 0, nullptr, nullptr) == DL_ERR_INVALID);
  CHECK(std::string(dl_last_error(nullptr)).find("dl_op_create") == 0);
  CHECK(dl_op_free(DL_SUM) == DL_ERR_INVALID);
  CHECK(dl_op_free(static_cast<dl_op>(8)) == DL_ERR_INVALID);
  all_well({.ranks = 2}, [](int rank, dl_comm*& comm) {
    const dl_op freed = op_of(kFunctions[0]);
    EXPECT(dl_op_free(freed) == DL_OK);
    EXPECT(dl_op_free(freed) == DL_ERR_INVALID);
    std::uint64_t x = 1;
    for (const int wrong : {static_cast<int>(freed), 8, 9, 15, -1, 1 << 30}) {
      EXPECT(dl_all_reduce(comm, &x, &x, 1, DL_UINT64, static_cast<dl_op>(wrong)) ==
             DL_ERR_INVALID);
    }
    return 0;
  });
}

TEST_CASE("program op: the result may lie on any operand, and beside another place") {
  const dl_op op = op_of(kFunctions[0]);
  for (const std::size_t count : {1UL, 100UL, 20011UL}) {
    for (const int operands : {1, 2, 3, 4}) {
      const Values expected = folded(operands, count, after);
      for (int place = -1; place < operands; ++place) {
        std::vector<Values> values;
        for (int r = 0; r < operands; ++r) values.push_back(drawn_values(r, count));
        std::vector<const void*> in;
        for (const Values& of_rank : values) in.push_back(of_rank.data());
        Values apart(count);
        Values& out = place < 0 ? apart : values[static_cast<std::size_t>(place)];
        reduce(in, out.data(), count, DL_UINT64, op, operands);
        CHECK(out == expected);
      }
    }
    Values a = drawn_values(0, count), b = drawn_values(1, count), also(count);
    Values passed(count), through = drawn_values(2, count), given = drawn_values(3, count);
    const void* both[] = {a.data(), b.data()};
    reduce_pair(both, a.data(), also.data(), count, DL_UINT64, op, 2,
                {.out = passed.data(), .through = through.data(), .in = given.data()});
    CHECK(a == folded(2, count, after));
    CHECK(also == a);
    CHECK(passed == drawn_values(2, count));
    CHECK(through == given);
  }
  CHECK(dl_op_free(op) == DL_OK);
}
