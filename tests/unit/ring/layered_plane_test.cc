// Ranks on several hosts: the map of hosts, wire codecs, and collectives over shared memory and
// sockets together.
#include "ring/hosts/layered_plane.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <doctest/doctest.h>

#include "equal_runs.h"
#include "ring/kernels/reduce.h"
#include "shm_world.h"
#include "stream_world.h"

namespace dlaunch {
namespace {

TEST_CASE("hosts: ranks are grouped by their leaders, and malformed input makes no groups") {
  const HostMap map({0, 1, 0, 1, 4, 4});
  CHECK(map.hosts() == 3);
  CHECK(map.ranks_of(0) == std::vector<int>{0, 2});
  CHECK(map.host_of(3) == 1);
  CHECK(map.local_index(3) == 1);
  CHECK(map.local_index(4) == 0);
  CHECK(map.even());
  CHECK(map.column(1) == std::vector<int>{2, 3, 5});
  CHECK_FALSE(HostMap({0, 0, 2}).even());
  for (const auto& nonsense : {std::vector<int>{0, 2, 1}, {0, -1, 0}, {0, 7, 0}}) {
    CHECK(HostMap(nonsense).hosts() == 3);
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
  for (const WireCodec codec : {WireCodec::bf16, WireCodec::int8}) {
    const float tolerance = codec == WireCodec::bf16 ? 1.0F / 256 : 0.5F / 127;
    for (const std::size_t count : {0, 1, 255, 256, 257, 5000}) {
      std::vector<float> values(count), back(count, 7);
      for (float& v : values) v = normal(random) * (random() % 3 == 0 ? 1e-6F : 10.0F);
      if (count > 300) std::fill(values.begin(), values.begin() + 256, 0.0F);
      std::vector<std::byte> wire(encoded_bytes(codec, count));
      encode_floats(codec, values.data(), count, wire.data());
      decode_floats(codec, wire.data(), count, back.data());
      for (std::size_t i = 0; i < count; ++i) {
        float scale = std::fabs(values[i]);
        for (std::size_t j = i / 256 * 256; j < std::min(count, i / 256 * 256 + 256); ++j) {
          if (codec == WireCodec::int8) scale = std::max(scale, std::fabs(values[j]));
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
  CHECK(value_of(kWireCodecWords, "bf16") == WireCodec::bf16);
  CHECK_FALSE(value_of(kWireCodecWords, "fp4"));
}

// hosts * locals ranks as threads; rank r is on host r % hosts, so that neighbours are strangers.
class LayeredWorld {
 public:
  LayeredWorld(int hosts, int locals, WireCodec codec) : sockets_(hosts * locals) {
    std::vector<int> leaders;
    for (int r = 0; r < hosts * locals; ++r) leaders.push_back(r % hosts);
    const HostMap map(leaders);
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
      for (const std::size_t count : {0, 1, 2, 5, 8000, 8191, 8193, 100'001, 3'000'005}) {
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
         .deadline = steady_now() + std::chrono::milliseconds(300)});
    return words(done);
  });
  for (const int r : {0, 1, 2}) {
    INFO(said[static_cast<std::size_t>(r)]);
    CHECK(said[static_cast<std::size_t>(r)].find("all_reduce #17 timed out") == 0);
  }
  CHECK(said[1].find("waiting for rank 3") != std::string::npos);  // on its host
}

}  // namespace
}  // namespace dlaunch
