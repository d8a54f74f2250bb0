#include "ring/stream_plane.h"

#include <algorithm>
#include <cstring>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ring/reduce.h"
#include "stream_world.h"

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
Bytes reference(int ranks, std::size_t count, dl_dtype dtype, dl_op op) {
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

struct Case {
  Collective collective = Collective::all_reduce;
  std::size_t count = 0;
  dl_dtype dtype = DL_FLOAT32;
  dl_op op = DL_SUM;
  int root = -1;
  bool in_place = false;
};

// Runs the case on all ranks; returns each rank's complaint, "" where all is right.
std::vector<std::string> run_case(StreamWorld& world, const Case& c, std::uint64_t seq) {
  const int n = world.ranks();
  const std::size_t element = dtype_bytes(c.dtype);
  const std::size_t bytes = c.count * element;
  const bool scatter = c.collective == Collective::reduce_scatter;
  const bool gather = c.collective == Collective::all_gather;
  const Bytes all =
      scatter ? reference(n, c.count * n, c.dtype, c.op) : reference(n, c.count, c.dtype, c.op);
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
    if (auto outcome = world.planes[rank]->run(call); !outcome) return outcome.error().what;
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

void check_case(StreamWorld& world, const Case& c, std::uint64_t& seq) {
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
        Case c{.dtype = static_cast<dl_dtype>(dtype), .op = static_cast<dl_op>(op)};
        if (!reducible(c.dtype, c.op)) continue;
        for (const std::size_t count : {1, 77, 33'333}) {
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
      if (ranks > 4 && count > 140'000) continue;
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

TEST_CASE("short writes and a ring of more ranks than the direct exchange takes") {
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
      const auto outcome = world.planes[rank]->run({.collective = Collective::all_reduce,
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

// --- messages

Result<void> send_ints(StreamPlane& plane, const std::vector<int>& values, int peer, int tag) {
  return plane.transfer({.send = values.data(),
                         .is_send = true,
                         .count = values.size(),
                         .dtype = DL_INT32,
                         .peer = peer,
                         .tag = tag,
                         .deadline = steady_now() + std::chrono::seconds(60)});
}

Result<void> recv_ints(StreamPlane& plane, std::vector<int>& values, int peer, int tag) {
  return plane.transfer({.recv = values.data(),
                         .is_send = false,
                         .count = values.size(),
                         .dtype = DL_INT32,
                         .peer = peer,
                         .tag = tag,
                         .deadline = steady_now() + std::chrono::seconds(60)});
}

TEST_CASE("messages are matched by peer and tag in the order of sending") {
  for (const Wire wire : {Wire::unix_socket, Wire::tcp}) {
    StreamWorld world(3, wire);
    const auto results = world.each<std::string>([&](int rank) -> std::string {
      StreamPlane& plane = *world.planes[rank];
      if (rank != 0) {
        for (const int tag : {5, 6, 5, 7}) {
          std::vector<int> values(tag == 6 ? 0 : 40'000, rank * 100 + tag);
          if (!values.empty()) values.back() = tag == 5 ? 1 : 2;
          if (auto sent = send_ints(plane, values, 0, tag); !sent) return sent.error().what;
        }
        return "";
      }
      // Not in the order of sending, and peer by peer.
      for (const int peer : {2, 1}) {
        for (const int tag : {7, 5, 5, 6}) {
          std::vector<int> values(tag == 6 ? 0 : 40'000);
          if (auto got = recv_ints(plane, values, peer, tag); !got) return got.error().what;
          if (!values.empty() && values[0] != peer * 100 + tag) return "wrong message";
        }
      }
      return "";
    });
    for (const auto& complaint : results) CHECK(complaint == "");
  }
}

// memcmp with itself one byte on: fast under every sanitizer.
bool all_are(const std::vector<std::int8_t>& values, int value) {
  return values[0] == value &&
         std::memcmp(values.data(), values.data() + 1, values.size() - 1) == 0;
}

Result<void> send_bytes(StreamPlane& plane, const std::vector<std::int8_t>& values, int peer) {
  return plane.transfer({.send = values.data(),
                         .is_send = true,
                         .count = values.size(),
                         .dtype = DL_INT8,
                         .peer = peer});
}

Result<void> recv_bytes(StreamPlane& plane, std::vector<std::int8_t>& values, int peer) {
  return plane.transfer(
      {.recv = values.data(), .count = values.size(), .dtype = DL_INT8, .peer = peer});
}

TEST_CASE("ranks that send to each other, or in a circle, before they receive do not block") {
  for (const int ranks : {2, 3}) {
    StreamWorld world(ranks, Wire::tcp);
    const auto results = world.each<std::string>([&](int rank) -> std::string {
      StreamPlane& plane = *world.planes[rank];
      std::vector<std::int8_t> out(64 << 20, static_cast<std::int8_t>(rank)), in(64 << 20);
      const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
      if (auto sent = send_bytes(plane, out, to); !sent) return sent.error().what;
      if (auto got = recv_bytes(plane, in, from); !got) return got.error().what;
      return all_are(in, from) ? "" : "wrong data";
    });
    for (const auto& complaint : results) CHECK(complaint == "");
  }
}

TEST_CASE("messages and collectives share the sockets") {
  StreamWorld world(3, Wire::unix_socket, 8192);
  const auto results = world.each<std::string>([&](int rank) -> std::string {
    StreamPlane& plane = *world.planes[rank];
    std::vector<int> sum(70'000, 1), message(30'000, rank), in(30'000);
    Call call{.collective = Collective::all_reduce,
              .in = sum.data(),
              .out = sum.data(),
              .count = sum.size(),
              .dtype = DL_INT32,
              .op = DL_SUM};
    for (std::uint64_t i = 1; i <= 20; ++i) {
      std::fill(sum.begin(), sum.end(), 1);
      // Rank 2 hears of both messages while it is in the collective and fetches them afterwards.
      if (rank != 2) {
        if (auto sent = send_ints(plane, message, 2, static_cast<int>(i)); !sent) {
          return sent.error().what;
        }
      }
      call.seq = i;
      if (auto outcome = plane.run(call); !outcome) return outcome.error().what;
      if (sum != std::vector<int>(70'000, 3)) return "wrong sum";
      for (int peer = 1; rank == 2 && peer >= 0; --peer) {
        if (auto got = recv_ints(plane, in, peer, static_cast<int>(i)); !got) {
          return got.error().what;
        }
        if (in != std::vector<int>(30'000, peer)) return "wrong message";
      }
    }
    return "";
  });
  for (const auto& complaint : results) CHECK(complaint == "");
}

TEST_CASE("a message larger than the inbox waits in the socket until it is asked for") {
  StreamWorld world(3);
  const auto results = world.each<std::string>([&](int rank) -> std::string {
    StreamPlane& plane = *world.planes[rank];
    std::vector<std::int8_t> large(300 << 20, static_cast<std::int8_t>(7 - rank)), small(1);
    if (rank == 0) return words(send_bytes(plane, large, 1));
    if (rank == 2) return words(send_bytes(plane, small, 1));
    // Whatever comes first, rank 0's message must not be in the way of rank 2's.
    if (auto got = recv_bytes(plane, small, 2); !got) return got.error().what;
    if (auto got = recv_bytes(plane, large, 0); !got) return got.error().what;
    return all_are(large, 7) ? "" : "wrong data";
  });
  for (const auto& complaint : results) CHECK(complaint == "");
}

TEST_CASE("a message that the inbox has no room for is an error where waiting cannot help") {
  StreamWorld world(2);
  const auto results = world.each<std::string>([&](int rank) -> std::string {
    StreamPlane& plane = *world.planes[rank];
    std::vector<std::int8_t> large(300 << 20);
    if (rank == 0) {
      const auto outcome = send_bytes(plane, large, 1);
      return words(outcome);
    }
    const auto outcome =
        plane.transfer({.recv = large.data(), .count = 1, .dtype = DL_INT8, .peer = 0, .tag = 9});
    world.planes[1].reset();
    return words(outcome);
  });
  CHECK(results[0].starts_with("rank 1 closed its connection during send to rank 1 (tag 0)"));
  CHECK(
      results[1].starts_with("recv from rank 0 (tag 9): a message of 314572800 bytes from rank 0 "
                             "(tag 0) comes first and does not fit"));
}

}  // namespace
}  // namespace dlaunch
