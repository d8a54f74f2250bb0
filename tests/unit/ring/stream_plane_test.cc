#include "ring/stream/stream_plane.h"

#include <algorithm>
#include <cstring>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "equal_runs.h"
#include "ring/kernels/reduce.h"
#include "stream_world.h"
#include "tests/unit/sanitized.h"

namespace dlaunch {
namespace {

using Bytes = std::vector<std::byte>;

// Values that every dtype can hold, in the byte layout of the dtype: small numbers, so that
// products and sums of floats are exact and every bit pattern is a number.
Bytes values_of(int rank, std::size_t count, dl_dtype dtype) {
  const std::size_t element = dtype_bytes(dtype);
  Bytes bytes(count * element);
  for (std::size_t i = 0; i < count; ++i) {
    const int value = static_cast<int>((i * 5 + static_cast<std::size_t>(rank) * 3) % 4) + 1;
    std::uint64_t pattern = static_cast<std::uint64_t>(value);
    // 1, 2, 3, 4 as floats of each width.
    const std::uint16_t half[] = {0x3c00, 0x4000, 0x4200, 0x4400};
    const std::uint16_t bfloat[] = {0x3f80, 0x4000, 0x4040, 0x4080};
    const auto single = static_cast<float>(value);
    const auto twice = static_cast<double>(value);
    if (dtype == DL_FLOAT16) pattern = half[value - 1];
    if (dtype == DL_BFLOAT16) pattern = bfloat[value - 1];
    if (dtype == DL_FLOAT32) std::memcpy(&pattern, &single, 4);
    if (dtype == DL_FLOAT64) std::memcpy(&pattern, &twice, 8);
    std::memcpy(bytes.data() + i * element, &pattern, element);
  }
  return bytes;
}

// All ranks' values combined in rank order by the kernels.
Bytes expected_result(int ranks, std::size_t count, dl_dtype dtype, dl_op op) {
  std::vector<Bytes> inputs;
  std::vector<const void*> operands;
  for (int r = 0; r < ranks; ++r) inputs.push_back(values_of(r, count, dtype));
  for (const Bytes& input : inputs) operands.push_back(input.data());
  Bytes out(count * dtype_bytes(dtype));
  if (count > 0) reduce(operands, out.data(), count, dtype, op, ranks);
  return out;
}

// A buffer that starts one element behind an aligned address.
struct Unaligned {
  Unaligned(const Bytes& content, std::size_t element)
      : skip(element), bytes(content.size() + element) {
    std::copy(content.begin(), content.end(), bytes.begin() + static_cast<std::ptrdiff_t>(skip));
  }
  std::byte* data() { return bytes.data() + skip; }
  Bytes content() const {
    return Bytes(bytes.begin() + static_cast<std::ptrdiff_t>(skip), bytes.end());
  }
  std::size_t skip;
  Bytes bytes;
};

struct StreamCase {
  Collective collective = Collective::all_reduce;
  std::size_t count = 0;
  dl_dtype dtype = DL_FLOAT32;
  dl_op op = DL_SUM;
  int root = -1;
  bool in_place = false;
};

// Runs the case on all ranks; returns each rank's complaint, "" where all is right.
std::vector<std::string> run_case(StreamWorld& world, const StreamCase& c, std::uint64_t seq) {
  const int n = world.ranks();
  const std::size_t element = dtype_bytes(c.dtype);
  const std::size_t bytes = c.count * element;
  const bool scatter = c.collective == Collective::reduce_scatter;
  const bool gather = c.collective == Collective::all_gather;
  const Bytes all = scatter ? expected_result(n, c.count * n, c.dtype, c.op)
                            : expected_result(n, c.count, c.dtype, c.op);
  return world.each<std::string>([&](int rank) -> std::string {
    Unaligned in(values_of(rank, scatter ? c.count * n : c.count, c.dtype), element);
    Unaligned out(Bytes(gather ? bytes * n : bytes), element);
    Call call{.collective = c.collective,
              .in = in.data(),
              .out = out.data(),
              .count = c.count,
              .dtype = c.dtype,
              .op = c.op,
              .root = c.root,
              .seq = seq,
              .deadline = steady_now() + std::chrono::seconds(60)};
    if (c.in_place && scatter) call.out = in.data() + rank * bytes;
    if (c.in_place && gather) {
      std::memcpy(out.data() + rank * bytes, in.data(), bytes);
      call.in = out.data() + rank * bytes;
    }
    if (c.collective == Collective::broadcast || (c.in_place && !scatter && !gather)) {
      call.out = in.data();
    }
    if (auto outcome = world.ends[rank]->run(call); !outcome) return outcome.error().what;
    Bytes want;
    if (c.collective == Collective::all_reduce) want = all;
    if (scatter) want.assign(all.begin() + rank * bytes, all.begin() + (rank + 1) * bytes);
    if (c.collective == Collective::broadcast) want = values_of(c.root, c.count, c.dtype);
    for (int r = 0; gather && r < n; ++r) {
      const Bytes part = values_of(r, c.count, c.dtype);
      want.insert(want.end(), part.begin(), part.end());
    }
    if (!want.empty() && std::memcmp(call.out, want.data(), want.size()) != 0)
      return "wrong result";
    const bool spared = !c.in_place && c.collective != Collective::broadcast;
    if (spared && in.content() != values_of(rank, scatter ? c.count * n : c.count, c.dtype)) {
      return "the input was changed";
    }
    return "";
  });
}

void check_case(StreamWorld& world, const StreamCase& c, std::uint64_t& seq) {
  ++seq;
  const auto complaints = run_case(world, c, seq);
  for (int r = 0; r < world.ranks(); ++r) {
    INFO(fmt::format("rank {} of {}: {} count {} {} {} in place {}", r, world.ranks(),
                     collective_name(c.collective), c.count, dtype_name(c.dtype), op_name(c.op),
                     c.in_place));
    REQUIRE(complaints[r] == "");
  }
}

TEST_CASE("every dtype and op is reduced right, in and out of place, unaligned") {
  for (const int ranks : {1, 2, 3, 5}) {
    StreamWorld world(ranks);
    std::uint64_t seq = 0;
    for (int dtype = DL_INT8; dtype <= DL_FLOAT64; ++dtype) {
      for (int op = DL_SUM; op <= DL_BXOR; ++op) {
        StreamCase c{.dtype = static_cast<dl_dtype>(dtype), .op = static_cast<dl_op>(op)};
        if (!reducible(c.dtype, c.op)) continue;
        for (const std::size_t count : {1, 77, 33'333}) {
          if (kSanitized && count > 77 && op != DL_SUM) continue;
          for (const bool in_place : {false, true}) {
            c.count = count;
            c.in_place = in_place;
            c.collective = Collective::all_reduce;
            check_case(world, c, seq);
            c.collective = Collective::reduce_scatter;
            if (count < 1000) check_case(world, c, seq);
          }
        }
      }
    }
  }
}

TEST_CASE("all collectives are right around every threshold") {
  for (const int ranks : {2, 3, 4, 7, 16}) {
    StreamWorld world(ranks, Wire::tcp);
    std::uint64_t seq = 0;
    const auto n = static_cast<std::size_t>(ranks);
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, std::size_t{1009}, std::size_t{16383},
          std::size_t{16384}, std::size_t{16385}, std::size_t{32769}, std::size_t{131'073},
          std::size_t{400'009}}) {
      if (ranks > 4 && count > (kSanitized ? 20'000 : 140'000)) continue;
      for (const bool in_place : {false, true}) {
        const auto block = std::max<std::size_t>(count / n, 1);
        check_case(world, {Collective::all_reduce, count, DL_FLOAT32, DL_SUM, -1, in_place}, seq);
        check_case(world, {Collective::reduce_scatter, block, DL_INT64, DL_MAX, -1, in_place}, seq);
        check_case(world, {Collective::all_gather, block, DL_UINT8, DL_SUM, -1, in_place}, seq);
        const int root = static_cast<int>(seq) % ranks;
        check_case(world, {Collective::broadcast, count, DL_INT32, DL_SUM, root, in_place}, seq);
        check_case(world, {Collective::barrier, 0, DL_UINT8, DL_SUM, -1, in_place}, seq);
      }
    }
  }
}

TEST_CASE("sockets: short writes, and a ring of more ranks than the direct exchange allows") {
  std::uint64_t seq = 0;
  StreamWorld narrow(4, Wire::unix_socket, 4096);
  for (const std::size_t count : {std::size_t{9}, std::size_t{20'000}, std::size_t{300'001}}) {
    check_case(narrow, {Collective::all_reduce, count, DL_INT32, DL_SUM, -1, true}, seq);
    check_case(narrow, {Collective::broadcast, count, DL_INT32, DL_SUM, 2, true}, seq);
    check_case(narrow, {Collective::all_gather, count, DL_FLOAT16, DL_SUM, -1, false}, seq);
  }
  StreamWorld wide(18, Wire::unix_socket, 4096);
  seq = 0;
  check_case(wide, {Collective::all_reduce, 100'003, DL_INT32, DL_SUM, -1, false}, seq);
  check_case(wide, {Collective::reduce_scatter, 5003, DL_INT32, DL_SUM, -1, true}, seq);
  check_case(wide, {Collective::all_gather, 5003, DL_INT32, DL_SUM, -1, true}, seq);
}

TEST_CASE("sockets: many ranks with a core each exchange small data through others") {
  for (const int ranks : {5, 8, 17}) {
    StreamWorld world(ranks, Wire::unix_socket, 0, {.agreed_cores = 64});
    const Call call{.collective = Collective::all_reduce, .count = 2048, .dtype = DL_FLOAT32};
    CHECK(world.ends[0]->explain(call).find("through other ranks") != std::string::npos);
    std::uint64_t seq = 0;
    for (const std::size_t count : {0, 1, 7, 2048}) {
      for (const bool in_place : {false, true}) {
        check_case(world, {Collective::all_reduce, count, DL_FLOAT32, DL_SUM, -1, in_place}, seq);
        check_case(world, {Collective::all_reduce, count, DL_BFLOAT16, DL_AVG, -1, in_place}, seq);
        check_case(world, {Collective::all_reduce, count, DL_INT8, DL_MAX, -1, in_place}, seq);
      }
    }
  }
}

TEST_CASE("floats have the same bits on all ranks, from run to run and at every cut") {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 100'000;
  const auto input = [](int rank, std::size_t i) {
    return (i % 3 == static_cast<std::size_t>(rank) ? 1e7F : 0.1F) * static_cast<float>(i + 1);
  };
  const auto sums = [&](std::size_t begin, std::size_t end) {
    StreamWorld world(kRanks);
    return world.each<std::vector<float>>([&](int rank) {
      std::vector<float> values(end - begin);
      for (std::size_t i = begin; i < end; ++i) values[i - begin] = input(rank, i);
      const auto outcome = world.ends[rank]->run({.collective = Collective::all_reduce,
                                                  .in = values.data(),
                                                  .out = values.data(),
                                                  .count = values.size(),
                                                  .dtype = DL_FLOAT32,
                                                  .op = DL_SUM,
                                                  .seq = 1});
      if (!outcome) values.clear();
      return values;
    });
  };
  const auto whole = sums(0, kCount), again = sums(0, kCount), part = sums(50'000, 50'100);
  REQUIRE(whole[0].size() == kCount);
  for (int r = 0; r < kRanks; ++r) {
    CHECK(whole[r] == whole[0]);
    CHECK(again[r] == whole[0]);
    CHECK(std::equal(part[r].begin(), part[r].end(), whole[0].begin() + 50'000));
  }
}

TEST_CASE("sockets: a thousand runs have the same bits") {
  StreamWorld world(3);
  for (const auto& wrong : world.each<std::string>(
           [&](int rank) { return thousand_runs_differ(*world.ends[rank], rank); })) {
    CHECK(wrong == "");
  }
}

}  // namespace
}  // namespace dlaunch
