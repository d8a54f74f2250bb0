// The decisions about calls on device memory: NCCL or the host, the calls of NCCL, the granules for
// the host, and the end of a wait. These tests need no device.
#include <cstring>
#include <numeric>

#include <doctest/doctest.h>

#include "ring/device/device_choice.h"
#include "ring/device/host_granules.h"
#include "ring/device/nccl_steps.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

DeviceFacts facts(unsigned char gpu, int nccl, const char* why_not = "") {
  DeviceFacts made;
  made.gpu[15] = gpu;
  made.nccl = nccl;
  std::strncpy(made.why_not, why_not, sizeof made.why_not - 1);
  return made;
}

// One call of all ranks in plain memory, as the collective's name says; inputs tell who and where.
struct Played {
  explicit Played(Call of, int n) : call(of), ranks(n) {
    const Shape shape = shape_of(call, ranks);
    for (int r = 0; r < ranks; ++r) {
      in.emplace_back(in_count(shape, r, ranks));
      out.emplace_back(out_count(shape, r, ranks), -1);
      std::iota(in.back().begin(), in.back().end(), 1000 * (r + 1));
    }
  }
  Call of(int rank) {
    Call own = call;
    const auto at = static_cast<std::size_t>(rank);
    own.in = in[at].empty() ? nullptr : in[at].data();
    own.out = out[at].empty() ? nullptr : out[at].data();
    if (own.counts != nullptr) own.count = own.counts[at];
    return own;
  }
  // What each rank's `out` has to be, where data is only moved.
  std::vector<std::vector<int>> expected() const {
    const Shape shape = shape_of(call, ranks);
    auto result = out;
    for (int giver = 0; giver < ranks; ++giver) {
      for (int taker = 0; taker < ranks; ++taker) {
        const Delivery move = delivery(shape, giver, taker);
        for (std::size_t i = 0; move.exists && i < move.count; ++i) {
          result[static_cast<std::size_t>(taker)][move.to + i] =
              in[static_cast<std::size_t>(giver)][move.from + i];
        }
      }
    }
    return result;
  }
  Call call;
  int ranks;
  std::vector<std::vector<int>> in, out;
};

constexpr Collective kMovers[] = {Collective::gather, Collective::scatter, Collective::all_gather,
                                  Collective::all_to_all};

Call moving_call(Collective collective, std::size_t count, const std::size_t* counts) {
  Call call{.collective = collective, .count = count, .dtype = DL_INT32};
  if (traits_of(collective).rooted) call.root = 1;
  call.counts = counts;
  return call;
}

bool takes_counts(Collective collective) {
  return collective == Collective::gather || collective == Collective::all_gather;
}

}  // namespace

TEST_CASE("device: NCCL is for ranks that all have it, in one version, and a GPU of their own") {
  CHECK(choose_for_device({facts(1, 22809), facts(2, 22809)}).nccl);
  const auto shared = choose_for_device({facts(1, 22809), facts(2, 22809), facts(1, 22809)});
  CHECK_FALSE(shared.nccl);
  CHECK(shared.why_not == "rank 0 and rank 2 share one GPU");
  CHECK(choose_for_device({facts(1, 22809), facts(2, 22700)}).why_not ==
        "rank 0 has NCCL 22809 and rank 1 has 22700");
  CHECK(choose_for_device({facts(1, 22809), facts(2, 0, "there is no libnccl.so.2")}).why_not ==
        "rank 1: there is no libnccl.so.2");
}

TEST_CASE("device: ranks with different NCCL_HOSTID are on different hosts, as for NCCL") {
  const auto way = [](const char* a, const char* b) {
    const unsigned char uuid[16] = {1, 2, 3};
    std::vector<DeviceFacts> ranks = {facts(0, 22809), facts(0, 22809)};
    name_gpu(ranks[0], uuid, a);
    name_gpu(ranks[1], uuid, b);
    return choose_for_device(ranks);
  };
  for (const char* same : {static_cast<const char*>(nullptr), "", "host"}) {
    CHECK(way(same, same).why_not == "rank 0 and rank 1 share one GPU");
  }
  CHECK(way("host0", "host1").nccl);
  CHECK(way("host0", nullptr).nccl);
}

TEST_CASE("device: ops that NCCL lacks do not use NCCL") {
  const auto served = [](dl_dtype dtype, dl_op op) {
    return nccl_serves({.collective = Collective::all_reduce, .dtype = dtype, .op = op});
  };
  CHECK(served(DL_INT32, DL_MAX));
  CHECK(served(DL_FLOAT16, DL_AVG));
  CHECK_FALSE(served(DL_INT32, DL_AVG));
  for (const dl_op op : {DL_BAND, DL_BOR, DL_BXOR}) {
    CHECK_FALSE(served(DL_INT32, op));
    CHECK(nccl_op(op) == -1);
  }
  CHECK(served(DL_COMPLEX64, DL_SUM));
  CHECK(served(DL_COMPLEX128, kPremulSum));
  CHECK_FALSE(served(DL_COMPLEX64, DL_PRODUCT));
  CHECK_FALSE(served(DL_FLOAT8_E4M3, DL_SUM));
  CHECK_FALSE(served(DL_FLOAT32, static_cast<dl_op>(kFirstFunction)));
  CHECK((nccl_numbers(DL_COMPLEX128) == 2 && nccl_dtype(DL_COMPLEX128) == nccl_dtype(DL_FLOAT64)));
  CHECK((nccl_numbers(DL_FLOAT8_E5M2) == 1 && nccl_dtype(DL_FLOAT8_E5M2) == nccl_dtype(DL_UINT8)));
  // Where nothing is reduced the op is of no account.
  CHECK(nccl_serves({.collective = Collective::broadcast, .dtype = DL_INT32, .op = DL_BAND}));
  CHECK(nccl_dtype(static_cast<dl_dtype>(14)) == -1);
}

TEST_CASE("device: a result counts first, then a lost rank, then an error, then the time limit") {
  const TimePoint now{10s}, later{11s};
  CHECK(judge_device(later, now, {.done = true, .over = true, .failed = true}) ==
        DeviceVerdict::done);
  CHECK(judge_device(later, now, {.over = true, .failed = true}) == DeviceVerdict::over);
  CHECK(judge_device(later, now, {.failed = true}) == DeviceVerdict::failed);
  CHECK(judge_device(later, now, {}) == DeviceVerdict::late);
  CHECK(judge_device(now, later, {}) == DeviceVerdict::wait);
  CHECK(device_pause(0us) == 0us);
  CHECK(device_pause(400us) == 0us);
  CHECK(device_pause(800us) == 50us);
  CHECK(device_pause(1h) == 1ms);
}

TEST_CASE("device: NCCL that hangs ends the round, and no rank is named") {
  int in[8] = {}, out[8] = {};
  const Call call{.collective = Collective::gather,
                  .in = in,
                  .out = out,
                  .count = 2,
                  .dtype = DL_INT32,
                  .root = 0,
                  .seq = 7};
  const Error lost = standstill_error(Standstill::nccl, call, 0, 4, 30s);
  CHECK(lost.code == Errc::peer_lost);
  CHECK(lost.rank == -1);
  CHECK(lost.what.find("gather #7 hangs on the GPUs: all 4 ranks are in it, but ncclRecv") == 0);
  CHECK(nccl_functions(nccl_steps(call, 1, 4)) == "ncclSend");
  const Error own = standstill_error(Standstill::own_gpu, call, 3, 4, 30s);
  CHECK(own.code == Errc::timeout);
  CHECK(own.rank == 3);
  CHECK(standstill_error(Standstill::setup, call, 0, 4, 30s).code == Errc::timeout);
}

TEST_CASE(
    "device: a reduce_scatter of parts that differ is a reduce to each rank that has a part") {
  int in[5] = {}, out[3] = {};
  const std::size_t counts[] = {2, 0, 3};
  Call call{.collective = Collective::reduce_scatter, .in = in, .out = out, .dtype = DL_INT32};
  call.counts = counts;
  using Kind = NcclStep::Kind;
  CHECK(nccl_steps(call, 2, 3) == std::vector<NcclStep>{{Kind::reduce, in, nullptr, 2, 0},
                                                        {Kind::reduce, in + 2, out, 3, 2}});
  CHECK(nccl_steps(call, 1, 3) == std::vector<NcclStep>{{Kind::reduce, in, nullptr, 2, 0},
                                                        {Kind::reduce, in + 2, nullptr, 3, 2}});
}

TEST_CASE("device: a rank sends and receives what its splits say") {
  int in[3] = {}, out[4] = {};
  const std::size_t given[] = {1, 0, 2}, taken[] = {0, 0, 4};
  const Splits splits{
      .rank = 1, .given = parts_of(given, 3), .taken = parts_of(taken, 3), .from = {}};
  Call call{.collective = Collective::all_to_all, .in = in, .out = out, .dtype = DL_INT32};
  call.splits = &splits;
  using Kind = NcclStep::Kind;
  CHECK(nccl_steps(call, 1, 3) == std::vector<NcclStep>{{Kind::send, in, nullptr, 1, 0},
                                                        {Kind::send, in + 1, nullptr, 2, 2},
                                                        {Kind::recv, nullptr, out, 4, 2}});
}

TEST_CASE("device: the sends and receives of all ranks match the collective") {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    std::vector<std::size_t> counts;
    for (int r = 0; r < ranks; ++r) counts.push_back(static_cast<std::size_t>(r * 2 % 5));
    for (const Collective collective : kMovers) {
      for (const bool with_counts : {false, true}) {
        if (with_counts && !takes_counts(collective)) continue;
        // What NCCL has as such is not made of these.
        if (!with_counts && collective == Collective::all_gather) continue;
        CAPTURE(collective_name(collective));
        Played game(moving_call(collective, 3, with_counts ? counts.data() : nullptr), ranks);
        std::vector<std::vector<NcclStep>> steps;
        for (int r = 0; r < ranks; ++r) steps.push_back(nccl_steps(game.of(r), r, ranks));
        for (int r = 0; r < ranks; ++r) {
          for (const NcclStep& step : steps[static_cast<std::size_t>(r)]) {
            const std::size_t bytes = step.count * sizeof(int);
            CHECK(step.count > 0);
            if (step.kind == NcclStep::Kind::copy) std::memcpy(step.out, step.in, bytes);
            if (step.kind != NcclStep::Kind::recv) continue;
            int given = 0;
            for (const NcclStep& other : steps[static_cast<std::size_t>(step.peer)]) {
              if (other.kind != NcclStep::Kind::send || other.peer != r) continue;
              CHECK(other.count == step.count);
              std::memcpy(step.out, other.in, bytes);
              ++given;
            }
            CHECK(given == 1);
          }
        }
        CHECK(game.out == game.expected());
      }
    }
  }
}

TEST_CASE("device: a list is one group, and empty tensors are not launched") {
  int a[3], b[2];
  TensorList list{{a, b}, {a, b}, {3, 5}};
  Call call{.collective = Collective::all_reduce, .count = 5, .dtype = DL_INT32, .list = &list};
  using Kind = NcclStep::Kind;
  CHECK(nccl_steps(call, 0, 2) ==
        std::vector<NcclStep>{{Kind::all_reduce, a, a, 3, -1}, {Kind::all_reduce, b, b, 2, -1}});
  CHECK(nccl_steps(call, 0, 1).empty());  // alone, and in place
  CHECK(nccl_steps({.collective = Collective::all_reduce, .in = a, .out = b}, 0, 2).empty());
  CHECK(nccl_steps({.collective = Collective::all_gather, .in = a, .out = b, .count = 2}, 0, 1) ==
        std::vector<NcclStep>{{Kind::copy, a, b, 2, -1}});
}

TEST_CASE("device: granules are calls of their own that add up to the whole") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<std::size_t> counts;
    for (int r = 0; r < ranks; ++r) counts.push_back(static_cast<std::size_t>(r * 4 % 9));
    for (const Collective collective : kMovers) {
      for (const bool with_counts : {false, true}) {
        for (const std::size_t granule : {std::size_t{1}, std::size_t{24}, std::size_t{1} << 20}) {
          if (with_counts && (!takes_counts(collective) || ranks < 2)) continue;
          if (traits_of(collective).rooted && ranks < 2) continue;
          CAPTURE(collective_name(collective));
          Played game(moving_call(collective, 7, with_counts ? counts.data() : nullptr), ranks);
          const HostCut cut = cut_for_host(game.of(0), ranks, granule);
          for (std::size_t i = 0; i < cut.granules; ++i) {
            // Each rank's memory on the host, the call there, and back.
            std::vector<HostGranule> granules;
            for (int r = 0; r < ranks; ++r) {
              granules.push_back(host_granule(game.of(r), r, ranks, cut, i));
            }
            Call step = game.call;
            step.count = granules[0].count;
            if (with_counts) step.counts = granules[0].counts.data();
            Played host(step, ranks);
            for (std::size_t r = 0; r < granules.size(); ++r) {
              CHECK(host.in[r].size() * sizeof(int) <= cut.in_bytes);
              CHECK(host.out[r].size() * sizeof(int) <= cut.out_bytes);
              std::size_t bytes = 0;
              for (const HostPiece& piece : granules[r].in) {
                CHECK(piece.staged == bytes);
                bytes += piece.bytes;
                REQUIRE(bytes <= host.in[r].size() * sizeof(int));
                std::memcpy(reinterpret_cast<char*>(host.in[r].data()) + piece.staged,
                            piece.in_device, piece.bytes);
              }
              CHECK(bytes == host.in[r].size() * sizeof(int));
            }
            host.out = host.expected();
            for (std::size_t r = 0; r < granules.size(); ++r) {
              for (const HostPiece& piece : granules[r].out) {
                std::memcpy(piece.out_device,
                            reinterpret_cast<char*>(host.out[r].data()) + piece.staged,
                            piece.bytes);
              }
            }
          }
          CHECK(game.out == game.expected());
        }
      }
    }
  }
}

TEST_CASE("device: granules of a list begin and end within its tensors") {
  std::vector<int> a(5), b(1), c(6);
  TensorList list{{a.data(), b.data(), c.data()}, {a.data(), b.data(), c.data()}, {5, 6, 12}};
  Call call{.collective = Collective::all_reduce, .count = 12, .dtype = DL_INT32, .list = &list};
  const HostCut cut = cut_for_host(call, 3, 4 * sizeof(int));
  CHECK(cut.granules == 3);
  const HostGranule second = host_granule(call, 1, 3, cut, 1);  // elements 4 to 7
  REQUIRE(second.in.size() == 3);
  CHECK(second.in[0].in_device == &a[4]);
  CHECK(second.in[1].in_device == &b[0]);
  CHECK(second.in[2].in_device == &c[0]);
  CHECK(second.in[2].bytes == 2 * sizeof(int));
  CHECK(second.out[2].staged == 2 * sizeof(int));
  CHECK(second.count == 4);
}

TEST_CASE("device: a broadcast is read at its root and written everywhere else") {
  std::vector<int> data(10);
  Call call{.collective = Collective::broadcast,
            .in = data.data(),
            .out = data.data(),
            .count = 10,
            .dtype = DL_INT32,
            .root = 1};
  const HostCut cut = cut_for_host(call, 2, 1 << 20);
  const HostGranule root = host_granule(call, 1, 2, cut, 0),
                    other = host_granule(call, 0, 2, cut, 0);
  CHECK(root.in.size() == 1);
  CHECK(root.out.empty());
  CHECK(other.in.empty());
  CHECK(other.out.size() == 1);
}
