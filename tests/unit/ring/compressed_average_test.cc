// The compressed average: exact bits of encodings, error feedback, and equal bits on all ranks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "ring/compress/encoded_average.h"
#include "tests/unit/ring/process_world.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;

namespace {

constexpr WireCodec kAllCodecs[] = {WireCodec::none, WireCodec::bf16, WireCodec::int8,
                                    WireCodec::fp8,  WireCodec::int4, WireCodec::topk};

std::vector<int> encoded_numbers(WireCodec codec, const std::vector<float>& values) {
  std::vector<std::byte> wire(encoded_bytes(codec, values.size()));
  encode_floats(codec, values.data(), values.size(), wire.data());
  std::vector<int> numbers;
  for (const std::byte b : wire) numbers.push_back(std::to_integer<int>(b));
  return numbers;
}

std::vector<float> rank_values(int rank, std::size_t count, unsigned step) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1000 + step);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 300;
  }
  return values;
}

// All ranks' average, without processes. The values of `in` and `residuals` are by rank.
std::vector<float> average_of(WireCodec codec, const std::vector<std::vector<float>>& in,
                              std::vector<std::vector<float>>& residuals) {
  const int ranks = static_cast<int>(in.size());
  const std::size_t count = in[0].size();
  std::vector<EncodedAverage> averages;
  std::vector<std::vector<std::byte>> sent(in.size());
  for (int r = 0; r < ranks; ++r) {
    const auto at = static_cast<std::size_t>(r);
    averages.emplace_back(codec, count, r, ranks);
    sent[at].resize(averages[at].bytes());
    averages[at].encode(in[at].data(), residuals[at].data(), sent[at].data());
  }
  std::vector<std::byte> all(averages[0].bytes());
  for (std::size_t r = 0; r < in.size(); ++r) {
    const Part own = averages[r].own_slice();
    std::vector<std::byte> taken(own.count * in.size());
    for (std::size_t from = 0; from < in.size(); ++from) {
      std::copy_n(sent[from].begin() + static_cast<std::ptrdiff_t>(own.first), own.count,
                  taken.begin() + static_cast<std::ptrdiff_t>(from * own.count));
    }
    averages[r].add_up(taken.data(), in[r].data(), residuals[r].data(), all.data() + own.first);
  }
  std::vector<float> out(count);
  averages[0].decode(all.data(), out.data());
  return out;
}

}  // namespace

TEST_CASE("codec: exact bits of fp8 and int4") {
  // The scale of the block is 7 / 7, and the values are its multiples, in two's complement.
  CHECK(encoded_numbers(WireCodec::int4, {7, -7, 1.4F, -2.5F, 3.5F}) ==
        std::vector<int>{0, 0, 0x80, 0x3f, 0x97, 0xe1, 0x04});
  // The scale is 448 / 448; 0x7e is 448, 0x38 is 1, and 17 is a tie, which goes to 16.
  CHECK(encoded_numbers(WireCodec::fp8, {448, 1, -1, 17, 0}) ==
        std::vector<int>{0, 0, 0x80, 0x3f, 0x7e, 0x38, 0xb8, 0x58, 0});
  CHECK(encoded_numbers(WireCodec::int4, {}).empty());
  CHECK(encoded_numbers(WireCodec::int4, {0, 0}) == std::vector<int>{0, 0, 0, 0, 0});
  CHECK(encoded_numbers(WireCodec::none, {1}) == std::vector<int>{0, 0, 0x80, 0x3f});
}

TEST_CASE("codec: topk keeps the largest, and of equal ones the first, with exact bits") {
  CHECK(encoded_numbers(WireCodec::topk, {1, -2}) == std::vector<int>{0, 0x80, 0x3f, 1, 0, 0xc0});
  CHECK(encoded_numbers(WireCodec::topk, {}).empty());
  std::vector<float> values(600);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 30 == 7 ? -3.0F : 0.5F;
  CHECK(encoded_bytes(WireCodec::topk, 600) == 3 * 48);
  CHECK(encoded_bytes(WireCodec::topk, 515) == 2 * 48 + 3 * 3);
  std::vector<std::byte> wire(encoded_bytes(WireCodec::topk, 600));
  encode_floats(WireCodec::topk, values.data(), 600, wire.data());
  std::vector<float> back(600, 9);
  decode_floats(WireCodec::topk, wire.data(), 600, back.data());
  for (std::size_t begin = 0; begin < 600; begin += 256) {
    const std::size_t end = std::min<std::size_t>(begin + 256, 600);
    const auto large = std::count(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                  values.begin() + static_cast<std::ptrdiff_t>(end), -3.0F);
    auto small = 16 - large;
    for (std::size_t i = begin; i < end; ++i) {
      const bool kept = values[i] == -3 || small-- > 0;
      REQUIRE(back[i] == (kept ? values[i] : 0));
    }
  }
  CHECK_FALSE(value_of(kWireCodecWords, "topk"));
}

TEST_CASE("compressed average: the mean over many calls is that of exact calls") {
  for (const WireCodec codec : kAllCodecs) {
    for (const int ranks : {2, 3}) {
      const std::size_t count = 1000, all = static_cast<std::size_t>(ranks);
      const bool sparse = codec == WireCodec::topk;
      constexpr int kCalls = 200;
      std::vector<std::vector<float>> residuals(all, std::vector<float>(count));
      std::vector<double> exact(count), given(count);
      for (unsigned call = 0; call < kCalls; ++call) {
        std::vector<std::vector<float>> in;
        for (int r = 0; r < ranks; ++r) in.push_back(rank_values(r, count, call));
        const auto out = average_of(codec, in, residuals);
        for (std::size_t i = 0; i < count; ++i) {
          double sum = 0;
          for (const auto& values : in) sum += static_cast<double>(values[i]);
          exact[i] += sum / ranks;
          given[i] += static_cast<double>(out[i]);
        }
      }
      // What is missing is in the residuals, which do not grow.
      for (std::size_t i = 0; i < count; ++i) {
        double kept = 0;
        for (const auto& residual : residuals) kept += static_cast<double>(residual[i]);
        REQUIRE(std::fabs(given[i] + kept / ranks - exact[i]) < (sparse ? 2e-2 : 2e-3));
        REQUIRE(std::fabs(kept) < (sparse ? 100 : 4));
      }
    }
  }
}

TEST_CASE("compressed average: what is not finite is seen, and does not stay") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const WireCodec codec : kAllCodecs) {
    for (const float odd : {nan, infinity}) {
      std::vector<std::vector<float>> in{rank_values(0, 700, 0), rank_values(1, 700, 0)};
      std::vector<std::vector<float>> residuals(2, std::vector<float>(700));
      in[0][600] = in[1][3] = odd;
      const auto spoilt = average_of(codec, in, residuals);
      CHECK_FALSE(std::isfinite(spoilt[600]));
      CHECK_FALSE(std::isfinite(spoilt[3]));
      CHECK(std::isfinite(spoilt[300]));
      in[0][600] = in[1][3] = 1;
      for (const float value : average_of(codec, in, residuals)) REQUIRE(std::isfinite(value));
    }
  }
}

TEST_CASE("compressed average: all ranks get the bits of the pure steps, by any transport") {
  for (const char* transport : kTransports) {
    for (const int ranks : {1, 2, 3, 5}) {
      if (kSanitized && ranks > 3) continue;
      all_well({.ranks = ranks, .transport = transport}, [ranks](int rank, dl_comm*& comm) {
        const auto all = static_cast<std::size_t>(ranks);
        for (const WireCodec codec : kAllCodecs) {
          for (const std::size_t count : {0UL, 1UL, 255UL, 256UL, 1000UL, 20011UL}) {
            std::vector<std::vector<float>> residuals(all, std::vector<float>(count));
            std::vector<float> residual(count), out(count);
            for (unsigned step = 0; step < 3; ++step) {
              std::vector<std::vector<float>> in;
              for (int r = 0; r < ranks; ++r) in.push_back(rank_values(r, count, step));
              const auto expected = ranks == 1 ? in[0] : average_of(codec, in, residuals);
              std::vector<float>& own = in[static_cast<std::size_t>(rank)];
              const auto c_codec = static_cast<dl_codec>(codec);
              if (step == 0) {
                EXPECT(dl_compressed_average(comm, own.data(), out.data(), count, c_codec,
                                             residual.data()) == DL_OK);
                EXPECT(out == expected);
              } else {  // in place, in the background
                dl_request* request = nullptr;
                EXPECT(dl_icompressed_average(comm, own.data(), own.data(), count, c_codec,
                                              residual.data(), &request) == DL_OK);
                EXPECT(dl_wait(&request) == DL_OK);
                EXPECT(own == expected);
              }
              EXPECT(residual == residuals[static_cast<std::size_t>(rank)]);
            }
          }
        }
        return 0;
      });
    }
  }
}

TEST_CASE("compressed average: wrong arguments do nothing, and ranks that differ learn it") {
  all_well({.ranks = 2}, [](int rank, dl_comm*& comm) {
    float a[8] = {}, b[8] = {}, kept[8] = {};
    const auto call = [&](const float* in, float* out, dl_codec codec, float* residual) {
      return dl_compressed_average(comm, in, out, 8, codec, residual);
    };
    EXPECT(call(a, b, static_cast<dl_codec>(6), kept) == DL_ERR_INVALID);
    EXPECT(call(nullptr, b, DL_CODEC_INT4, kept) == DL_ERR_INVALID);
    EXPECT(call(a, b, DL_CODEC_INT4, b) == DL_ERR_INVALID);
    EXPECT(std::string(dl_last_error(comm)).find("residual overlaps") != std::string::npos);
    EXPECT(call(a, a + 1, DL_CODEC_INT4, nullptr) == DL_ERR_INVALID);
    EXPECT(call(a, b, DL_CODEC_INT4, nullptr) == DL_OK);
    const auto result = call(a, b, rank == 0 ? DL_CODEC_INT4 : DL_CODEC_FP8, kept);
    EXPECT((result == DL_ERR_MISMATCH || result == DL_ERR_PEER_LOST));
    EXPECT((result == DL_ERR_PEER_LOST ||
            std::string(dl_last_error(comm)).find("gave different counts or codecs") !=
                std::string::npos));
    return 0;
  });
}
