// Ranks on several hosts: the map of hosts, wire codecs, and collectives over shared memory and
// sockets together.
#include "ring/hosts/layered_plane.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "equal_runs.h"
#include "ring/kernels/program_op.h"
#include "ring/kernels/reduce.h"
#include "shm_world.h"
#include "stream_world.h"
#include "tests/unit/sanitized.h"

namespace dlaunch {
namespace {

TEST_CASE("hosts: ranks are grouped by their leaders, and malformed input makes no groups") {
  const RankGroups map({0, 1, 0, 1, 4, 4});
  CHECK(map.groups() == 3);
  CHECK(map.ranks_of(0) == std::vector<int>{0, 2});
  CHECK(map.group_of(3) == 1);
  CHECK(map.place_of(3) == 1);
  CHECK(map.place_of(4) == 0);
  CHECK(map.even());
  CHECK(map.column(1) == std::vector<int>{2, 3, 5});
  CHECK_FALSE(RankGroups({0, 0, 2}).even());
  for (const auto& nonsense : {std::vector<int>{0, 2, 1}, {0, -1, 0}, {0, 7, 0}}) {
    CHECK(RankGroups(nonsense).groups() == 3);
  }
}

TEST_CASE("hosts: a group's share of a host's cores is that of its members there") {
  CHECK(cores_of_group(8, {0, 1, 2, 3}, {1, 2}) == 4);
  CHECK(cores_of_group(8, {0, 1, 2, 3}, {4, 5, 6, 7}) == 1);
  CHECK(cores_of_group(8, {4, 5, 6, 7}, {4, 5, 6, 7}) == 8);  // of eight ranks on two hosts
  CHECK(cores_of_group(8, {4, 5, 6, 7}, {0, 5}) == 2);
  CHECK(cores_of_group(2, {0, 1, 2, 3}, {0}) == 1);
  CHECK(cores_of_group(0, {}, {0}) == 1);
}

TEST_CASE(
    "codec: what comes back is near, zeros and small blocks included, and NaN is not hidden") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const WireCodec codec :
       {WireCodec::bf16, WireCodec::int8, WireCodec::fp8, WireCodec::int4}) {
    const float tolerance = codec == WireCodec::bf16   ? 1.0F / 256
                            : codec == WireCodec::int8 ? 0.5F / 127
                            : codec == WireCodec::fp8  ? 1.0F / 16
                                                       : 0.5F / 7;
    const std::size_t block = codec == WireCodec::int4 ? 128 : 256;
    for (const std::size_t count : {0, 1, 255, 256, 257, 5000}) {
      std::vector<float> values(count), back(count, 7);
      for (float& v : values) v = normal(random) * (random() % 3 == 0 ? 1e-6F : 10.0F);
      if (count > 300) std::fill(values.begin(), values.begin() + 256, 0.0F);
      std::vector<std::byte> wire(encoded_bytes(codec, count));
      encode_floats(codec, values.data(), count, wire.data());
      decode_floats(codec, wire.data(), count, back.data());
      for (std::size_t i = 0; i < count; ++i) {
        float scale = std::fabs(values[i]);
        const std::size_t first = i / block * block;
        for (std::size_t j = first; j < std::min(count, first + block); ++j) {
          if (codec != WireCodec::bf16) scale = std::max(scale, std::fabs(values[j]));
        }
        REQUIRE(std::fabs(back[i] - values[i]) <= scale * tolerance);
      }
    }
    const float odd[] = {1, std::numeric_limits<float>::quiet_NaN(), -0.0F, 1e-42F,
                         -std::numeric_limits<float>::infinity()};
    float back[5];
    std::vector<std::byte> wire(encoded_bytes(codec, 5));
    encode_floats(codec, odd, 5, wire.data());
    decode_floats(codec, wire.data(), 5, back);
    CHECK(std::isnan(back[1]));
    CHECK(!std::isfinite(back[4]));
  }
  CHECK(encoded_bytes(WireCodec::int8, 1024) == 1040);
  CHECK(encoded_bytes(WireCodec::fp8, 1025) == 1045);
  CHECK(encoded_bytes(WireCodec::int4, 1024) == 544);
  CHECK(encoded_bytes(WireCodec::int4, 129) == 4 + 64 + 4 + 1);
  CHECK(value_of(kWireCodecWords, "bf16") == WireCodec::bf16);
  CHECK_FALSE(value_of(kWireCodecWords, "fp4"));
}

// hosts * locals ranks as threads; rank r is on host r % hosts, so that neighbours are strangers.
class LayeredWorld {
 public:
  LayeredWorld(int hosts, int locals, WireCodec codec) : sockets_(hosts * locals) {
    std::vector<int> leaders;
    for (int r = 0; r < hosts * locals; ++r) leaders.push_back(r % hosts);
    const RankGroups map(leaders);
    for (int h = 0; h < hosts; ++h) {
      hosts_.push_back(std::make_unique<ShmWorld>(locals, 64, true, map.ranks_of(h)));
    }
    for (int r = 0; r < hosts * locals; ++r) {
      auto local = locals > 1 ? hosts_[static_cast<std::size_t>(r % hosts)]->take(r / hosts)
                              : std::unique_ptr<Plane>();
      auto& between = sockets_.ends[static_cast<std::size_t>(r)];
      between = make_layered_plane(r, map, std::move(local), std::move(between),
                                   *sockets_.flags[static_cast<std::size_t>(r)], codec);
    }
  }
  SocketWorld<Plane>& ranks() { return sockets_; }
  // As the links of communicators do: all other ranks learn that this one has failed.
  void tell_failure_of(int rank) {
    const Error lost{.code = Errc::peer_lost, .what = "another rank failed", .rank = rank};
    for (const auto& flag : sockets_.flags) flag->raise(lost);
    for (const auto& host : hosts_) {
      for (int place = 0; place < host->ranks(); ++place) host->abort(place).raise(lost);
    }
  }

 private:
  std::vector<std::unique_ptr<ShmWorld>> hosts_;
  SocketWorld<Plane> sockets_;
};

// Small whole numbers: sums are exact in whatever order they are made.
std::vector<float> numbers(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 32);
  }
  return values;
}

std::string all_reduce_is_right(Plane& plane, int rank, int ranks, std::size_t count, dl_op op,
                                bool in_place, std::uint64_t seq) {
  auto in = numbers(rank, count);
  std::vector<float> separate(count, -1), want(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (int r = 0; r < ranks; ++r) {
      const auto x = static_cast<float>((i * 7 + static_cast<std::size_t>(r) * 13) % 32);
      want[i] = op == DL_MAX ? std::max(want[i], x) : want[i] + x;
    }
    if (op == DL_AVG) want[i] /= static_cast<float>(ranks);
  }
  auto& out = in_place ? in : separate;
  const auto done = plane.run({.collective = Collective::all_reduce,
                               .in = in.data(),
                               .out = out.data(),
                               .count = count,
                               .dtype = DL_FLOAT32,
                               .op = op,
                               .seq = seq,
                               .deadline = steady_now() + std::chrono::seconds(60)});
  if (!done) return done.error().what;
  return out == want ? "" : "wrong sum";
}

TEST_CASE(
    "layered: all_reduce and broadcast at every size, beside collectives that are not layered") {
  for (const auto& [hosts, locals] : {std::pair(2, 2), {3, 2}, {2, 3}}) {
    LayeredWorld world(hosts, locals, WireCodec::none);
    const int n = hosts * locals;
    const auto said = world.ranks().each<std::string>([&](int rank) -> std::string {
      Plane& plane = *world.ranks().ends[static_cast<std::size_t>(rank)];
      std::uint64_t seq = 0;
      // The largest has two blocks, and three without a sanitizer.
      for (const std::size_t count :
           {0, 1, 2, 5, 8000, 8191, 8193, 100'001, kSanitized ? 1'200'005 : 3'000'005}) {
        if (kSanitized && count > 1'000'000 && n > 4) continue;
        for (const dl_op op : {DL_SUM, DL_AVG, DL_MAX}) {
          if (count > 1'000'000 && op != DL_SUM) continue;
          auto wrong = all_reduce_is_right(plane, rank, n, count, op, count % 2 == 1, ++seq);
          if (!wrong.empty()) return wrong;
        }
        const int root = static_cast<int>(count) % n;
        auto buffer = numbers(rank, count);
        if (rank != root) std::fill(buffer.begin(), buffer.end(), -1.0F);
        auto done = plane.run({.collective = Collective::broadcast,
                               .in = buffer.data(),
                               .out = buffer.data(),
                               .count = count,
                               .dtype = DL_FLOAT32,
                               .root = root,
                               .seq = ++seq});
        if (!done) return done.error().what;
        if (buffer != numbers(root, count)) return "wrong broadcast";
        std::vector<int> ranks(static_cast<std::size_t>(n));
        done = plane.run({.collective = Collective::all_gather,
                          .in = &rank,
                          .out = ranks.data(),
                          .count = 1,
                          .dtype = DL_INT32,
                          .seq = ++seq});
        if (!done || ranks.back() != n - 1) return "wrong all_gather";
      }
      return "";
    });
    for (const auto& wrong : said) CHECK(wrong == "");
  }
}

TEST_CASE("layered: averages of float16 whose sum exceeds its range") {
  constexpr std::uint16_t k40000 = 0x78e2;
  LayeredWorld world(2, 2, WireCodec::none);
  for (const std::size_t count : {1, 3, 100'003}) {
    const auto exact = world.ranks().each<std::ptrdiff_t>([&](int rank) {
      std::vector<std::uint16_t> values(count, k40000);
      const auto done = world.ranks().ends[static_cast<std::size_t>(rank)]->run(
          {.collective = Collective::all_reduce,
           .in = values.data(),
           .out = values.data(),
           .count = count,
           .dtype = DL_FLOAT16,
           .op = DL_AVG,
           .seq = count});
      return done ? std::count(values.begin(), values.end(), k40000) : -1;
    });
    for (const auto one : exact) CHECK(one == static_cast<std::ptrdiff_t>(count));
  }
}

TEST_CASE("layered: a thousand runs have the same bits") {
  LayeredWorld world(2, 2, WireCodec::none);
  for (const auto& wrong : world.ranks().each<std::string>([&](int rank) {
         return thousand_runs_differ(*world.ranks().ends[static_cast<std::size_t>(rank)], rank);
       })) {
    CHECK(wrong == "");
  }
}

TEST_CASE("layered: encoded sums are near, and have the same bits on every rank and in every run") {
  for (const WireCodec codec : {WireCodec::bf16, WireCodec::int8}) {
    for (const int locals : {1, 2}) {
      constexpr std::size_t kCount = 1'200'007;
      const int n = 3 * locals;
      const auto run = [&] {
        LayeredWorld world(3, locals, codec);
        return world.ranks().each<std::vector<float>>([&](int rank) {
          auto values = numbers(rank, kCount);
          const auto done = world.ranks().ends[static_cast<std::size_t>(rank)]->run(
              {.collective = Collective::all_reduce,
               .in = values.data(),
               .out = values.data(),
               .count = kCount,
               .dtype = DL_FLOAT32,
               .op = DL_AVG,
               .seq = 1});
          if (!done) values.clear();
          return values;
        });
      };
      const auto first = run(), second = run();
      REQUIRE(first[0].size() == kCount);
      float worst = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        float mean = 0;
        for (int r = 0; r < n; ++r) mean += numbers(r, 64)[i % 32] / static_cast<float>(n);
        worst = std::max(worst, std::fabs(first[0][i] - mean));
        if (i == 2000) i = kCount - 2000;
      }
      CHECK(worst < 0.5F);
      CHECK(worst > 0.0F);
      for (std::size_t r = 0; r < first.size(); ++r) {
        CHECK(first[r] == first[0]);
        CHECK(second[r] == first[0]);
      }
    }
  }
}

TEST_CASE("layered: a codec takes complex numbers as pairs of floats") {
  constexpr std::size_t kValues = 1'200'000;
  const auto averages = [&](dl_dtype dtype) {
    LayeredWorld world(3, 2, WireCodec::int8);
    return world.ranks().each<std::vector<float>>([&](int rank) {
      auto values = numbers(rank, kValues);
      const auto done = world.ranks().ends[static_cast<std::size_t>(rank)]->run(
          {.collective = Collective::all_reduce,
           .in = values.data(),
           .out = values.data(),
           .count = kValues * sizeof(float) / dtype_bytes(dtype),
           .dtype = dtype,
           .op = DL_AVG,
           .seq = 1});
      if (!done) values.clear();
      return values;
    });
  };
  const auto as_complex = averages(DL_COMPLEX64), as_floats = averages(DL_FLOAT32);
  REQUIRE(as_floats[0].size() == kValues);
  CHECK(as_complex == as_floats);
}

TEST_CASE("layered: a rank that never comes ends the call for all, and the calls beside it") {
  LayeredWorld world(2, 2, WireCodec::none);
  const auto said = world.ranks().each<std::string>([&](int rank) -> std::string {
    if (rank == 3) return "";
    std::vector<float> values(4'000'000, 1);
    const auto done = world.ranks().ends[static_cast<std::size_t>(rank)]->run(
        {.collective = Collective::all_reduce,
         .in = values.data(),
         .out = values.data(),
         .count = values.size(),
         .dtype = DL_FLOAT32,
         .op = DL_SUM,
         .seq = 17,
         .deadline = steady_now() + std::chrono::seconds(2)});
    return words(done);
  });
  for (const int r : {0, 1, 2}) {
    INFO(said[static_cast<std::size_t>(r)]);
    CHECK(said[static_cast<std::size_t>(r)].find("all_reduce #17 timed out") == 0);
  }
  CHECK(said[1].find("waiting for rank 3") != std::string::npos);  // on its host
}

// Affine functions x -> a*x + b modulo 2^32, one after the other, which does not commute; and the
// larger low half, which does.
std::uint64_t affine_after(std::uint64_t first, std::uint64_t then) {
  const auto a = static_cast<std::uint32_t>(then), b = static_cast<std::uint32_t>(then >> 32);
  const auto low = a * static_cast<std::uint32_t>(first);
  return low | std::uint64_t{a * static_cast<std::uint32_t>(first >> 32) + b} << 32;
}
std::uint64_t larger_low(std::uint64_t x, std::uint64_t y) {
  const auto key = [](std::uint64_t of) { return of << 32 | of >> 32; };
  return key(x) > key(y) ? x : y;
}
template <std::uint64_t combine(std::uint64_t, std::uint64_t)>
int combine_all(const void* in, void* inout, std::size_t count, dl_dtype, void*) {
  const auto* x = static_cast<const std::uint64_t*>(in);
  auto* y = static_cast<std::uint64_t*>(inout);
  for (std::size_t i = 0; i < count; ++i) y[i] = combine(x[i], y[i]);
  return 0;
}
std::uint64_t scattered(int rank, std::size_t i) {
  const std::uint64_t x = (i + 1) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(rank + 1);
  return (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
}

using Combine64 = std::uint64_t(std::uint64_t, std::uint64_t);
// Runs a reduction of each kind by this function, where its order fits; says what is wrong.
std::string functions_are_right(Plane& plane, int rank, int n, std::size_t count, dl_op op,
                                Combine64* combine, bool keeps_all_reduce, std::uint64_t& seq) {
  const auto ranks = static_cast<std::size_t>(n);
  std::vector<std::uint64_t> in(count * ranks), all(count * ranks);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = scattered(rank, i);
    all[i] = scattered(0, i);
    for (int r = 1; r < n; ++r) all[i] = combine(all[i], scattered(r, i));
  }
  for (const auto collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    const bool scatters = collective == Collective::reduce_scatter;
    std::vector<std::uint64_t> out(count);
    Call call{.collective = collective,
              .in = in.data(),
              .out = out.data(),
              .count = count,
              .dtype = DL_UINT64,
              .op = op,
              .root = collective == Collective::reduce ? n - 1 : -1,
              .deadline = steady_now() + std::chrono::seconds(60)};
    const bool keeps = keeps_all_reduce || collective != Collective::all_reduce;
    if (plane.keeps_order(call) != keeps) return "a wrong answer of keeps_order()";
    if (is_in_order(op) && !keeps) continue;
    call.seq = ++seq;
    if (const auto done = plane.run(call); !done) return done.error().what;
    if (collective == Collective::reduce && rank != n - 1) continue;
    const auto* const want = all.data() + (scatters ? static_cast<std::size_t>(rank) * count : 0);
    if (!std::equal(out.begin(), out.end(), want)) {
      return fmt::format("a wrong {} of {}", collective_name(collective), count);
    }
  }
  return "";
}

TEST_CASE("layered: functions of the program, and the order of ranks where the plane keeps it") {
  const auto op_of = [](dl_op_function* function, bool commutes) {
    return *add_program_op({.function = function}, commutes);
  };
  const dl_op in_order = op_of(combine_all<affine_after>, false);
  const dl_op commuting = op_of(combine_all<larger_low>, true);
  for (const auto& [hosts, locals] : {std::pair(2, 2), {3, 2}, {2, 3}, {3, 1}}) {
    LayeredWorld world(hosts, locals, locals == 1 ? WireCodec::bf16 : WireCodec::none);
    const int n = hosts * locals;
    const bool one_a_host = locals == 1;
    const auto said = world.ranks().each<std::string>([&](int rank) -> std::string {
      Plane& plane = *world.ranks().ends[static_cast<std::size_t>(rank)];
      std::uint64_t seq = 0;
      for (const std::size_t count : {1, 7, 4099, 40'009, 1'200'007}) {
        if (count > 1'000'000 && n > (kSanitized ? 3 : 4)) continue;
        for (const auto& [op, combine] :
             {std::pair(in_order, &affine_after), {commuting, &larger_low}}) {
          auto wrong = functions_are_right(plane, rank, n, count, op, combine, one_a_host, seq);
          if (!wrong.empty()) return wrong;
        }
      }
      return "";
    });
    for (const auto& wrong : said) CHECK(wrong == "");
  }
  CHECK((remove_program_op(in_order) && remove_program_op(commuting)));
}

// Fails once it has had so many elements, on the thread of the caller or on another one.
struct FailsAfter {
  std::size_t elements;
  bool on_callers_thread;
  std::thread::id caller;
};
int fail_after(const void*, void*, std::size_t count, dl_dtype, void* context) {
  auto& fails = *static_cast<FailsAfter*>(context);
  if ((std::this_thread::get_id() == fails.caller) != fails.on_callers_thread) return 0;
  if (fails.elements < count) return 42;
  fails.elements -= count;
  return 0;
}
int never_fail(const void*, void*, std::size_t, dl_dtype, void*) { return 0; }

TEST_CASE("layered: a function that fails in the second block ends the exchanges under way") {
  constexpr int kFails = 1;
  for (const bool within_host : {true, false}) {
    CAPTURE(within_host);
    LayeredWorld world(2, 2, WireCodec::none);
    const auto outcomes = world.ranks().each<Result<void>>([&](int rank) {
      // Each of four blocks has 262,144 elements for this rank on its host, half as many between
      // hosts.
      std::vector<std::uint64_t> values(2'000'000);
      FailsAfter fails{within_host ? 300'000UL : 150'000UL, within_host,
                       std::this_thread::get_id()};
      const dl_op op = *add_program_op(
          {.function = rank == kFails ? fail_after : never_fail, .context = &fails}, true);
      auto done = without_exceptions([&] {
        return world.ranks().ends[static_cast<std::size_t>(rank)]->run(
            {.collective = Collective::all_reduce,
             .in = values.data(),
             .out = values.data(),
             .count = values.size(),
             .dtype = DL_UINT64,
             .op = op,
             .seq = 17,
             .deadline = steady_now() + std::chrono::seconds(60)});
      });
      if (!done) world.tell_failure_of(rank);
      remove_program_op(op);
      return done;
    });
    for (int r = 0; r < 4; ++r) {
      const auto& done = outcomes[static_cast<std::size_t>(r)];
      CAPTURE(r);
      REQUIRE(!done);
      INFO(done.error().what);
      CHECK(done.error().code == (r == kFails ? Errc::aborted : Errc::peer_lost));
    }
    CHECK(words(outcomes[kFails]) ==
          "all_reduce #17: the function of its operation returned 42 on this rank");
  }
}

}  // namespace
}  // namespace dlaunch
