#include "ring/kernels/reduce.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "ring/call/plane.h"
#include "ring/kernels/copy.h"
#include "ring/kernels/wire_codec.h"
#include "tests/unit/sanitized.h"

using namespace dlaunch;

namespace {

// Conversions by definition, in double precision, to compare the bit tricks with.
double half_value(std::uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  const double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// The nearest half by search; ties to even mantissa.
std::uint16_t nearest_half(float f) {
  if (std::isnan(f)) return 0x7e00;
  const std::uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  const double x = std::fabs(static_cast<double>(f));
  if (x >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  std::uint16_t low = 0, high = 0x7bff;
  while (low < high) {
    const auto mid = static_cast<std::uint16_t>((low + high + 1) / 2);
    if (half_value(mid) <= x)
      low = mid;
    else
      high = static_cast<std::uint16_t>(mid - 1);
  }
  const double below = x - half_value(low);
  const double next = low == 0x7bff ? 65536 : half_value(static_cast<std::uint16_t>(low + 1));
  const double above = next - x;
  const bool up = above < below || (above == below && low % 2 == 1);
  return static_cast<std::uint16_t>(sign | (low + up));
}

template <class T>
std::vector<T> reduced(std::vector<std::vector<T>> in, dl_dtype dtype, dl_op op, int divisor = 0,
                       StoreHint hint = StoreHint::cached) {
  std::vector<const void*> operands;
  for (const auto& v : in) operands.push_back(v.data());
  std::vector<T> out(in[0].size());
  reduce(operands, out.data(), out.size(), dtype, op, divisor, hint);
  return out;
}

const float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct EachIsa {
  template <class Body>
  explicit EachIsa(Body body) {
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
      if (use_isa(isa)) body();
    }
  }
};

}  // namespace

TEST_CASE("wire codecs write and read the same bytes with every instruction set") {
  std::mt19937 random(4);
  std::uniform_int_distribution<std::uint32_t> any;
  std::vector<float> values(5000), ordinary(5000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = any(random);  // any float: denormal, infinite, not a number
    std::memcpy(&values[i], &bits, sizeof bits);
    ordinary[i] = static_cast<float>(static_cast<std::int32_t>(bits)) * 1e-7F;
  }
  for (const auto* floats : {&values, &ordinary}) {
    for (const WireCodec codec :
         {WireCodec::bf16, WireCodec::int8, WireCodec::fp8, WireCodec::int4, WireCodec::topk}) {
      std::vector<std::vector<std::byte>> wires;
      std::vector<std::vector<std::uint32_t>> backs;
      EachIsa([&] {
        auto& wire = wires.emplace_back(encoded_bytes(codec, floats->size()));
        encode_floats(codec, floats->data(), floats->size(), wire.data());
        std::vector<float> back(floats->size());
        decode_floats(codec, wire.data(), back.size(), back.data());
        std::memcpy(backs.emplace_back(back.size()).data(), back.data(), back.size() * 4);
      });
      for (const auto& wire : wires) CHECK(wire == wires[0]);
      for (const auto& back : backs) CHECK(back == backs[0]);
    }
  }
}

TEST_CASE("every half survives widening, and every rounding is to nearest even") {
  EachIsa([] {
    std::vector<std::uint16_t> all(65536), ones(65536, 0x3c00);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const auto same = reduced<std::uint16_t>({all}, DL_FLOAT16, DL_SUM);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool nan = std::isnan(half_value(all[i]));
      CHECK((nan ? std::isnan(half_value(same[i])) : same[i] == all[i]));
    }
    std::mt19937 random(5);
    std::vector<std::uint16_t> a(20000), b(20000);
    for (auto& x : a) x = static_cast<std::uint16_t>(random());
    for (auto& x : b) x = static_cast<std::uint16_t>(random());
    const auto product = reduced<std::uint16_t>({a, b}, DL_FLOAT16, DL_PRODUCT);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const float exact =
          static_cast<float>(half_value(a[i])) * static_cast<float>(half_value(b[i]));
      if (std::isnan(exact))
        CHECK(std::isnan(half_value(product[i])));
      else
        CHECK(product[i] == nearest_half(exact));
    }
  });
}

TEST_CASE("bfloat16 rounds once, to nearest even, and keeps NaN and infinity") {
  EachIsa([] {
    // 1 + 2^-8 + 2^-8: rounding after each addition would give 1, rounding once gives 1 + 2^-7.
    const std::uint16_t one = 0x3f80, tiny = 0x3b80;
    CHECK(reduced<std::uint16_t>({{one}, {tiny}, {tiny}}, DL_BFLOAT16, DL_SUM)[0] == 0x3f81);
    CHECK(reduced<std::uint16_t>({{0x7f80}, {one}}, DL_BFLOAT16, DL_SUM)[0] == 0x7f80);
    const auto nan = reduced<std::uint16_t>({{0x7f80}, {0xff80}}, DL_BFLOAT16, DL_SUM)[0];
    CHECK((nan & 0x7fff) > 0x7f80);
    CHECK(reduced<std::uint16_t>({{one}, {one}}, DL_BFLOAT16, DL_AVG, 2)[0] == one);
  });
}

TEST_CASE("floats: NaN, infinity, denormals and signed zero") {
  EachIsa([] {
    const float tiny = std::numeric_limits<float>::denorm_min();
    const std::vector<float> a = {1, kNan, kInf, tiny, -0.0f, 3};
    const std::vector<float> b = {2, 5, -kInf, tiny, -0.0f, kNan};
    const auto sum = reduced<float>({a, b}, DL_FLOAT32, DL_SUM);
    CHECK(sum[0] == 3);
    CHECK(std::isnan(sum[1]));
    CHECK(std::isnan(sum[2]));
    CHECK(sum[3] == 2 * tiny);
    CHECK(std::signbit(sum[4]));
    for (const dl_op op : {DL_MAX, DL_MIN}) {
      const auto extreme = reduced<float>({a, b, a}, DL_FLOAT32, op);
      CHECK(std::isnan(extreme[1]));
      CHECK(std::isnan(extreme[5]));
      CHECK(extreme[0] == (op == DL_MAX ? 2 : 1));
    }
  });
}

// Else the bits of a result would depend on the compiler's taste, and on where a vector is cut.
TEST_CASE(
    "of several NaNs the first rank's is the result, wherever it stands and however reduced") {
  const auto nan = [](std::uint32_t rank) { return std::bit_cast<float>(0x7fc00000u + rank); };
  constexpr std::size_t kCount = 301;  // whole vectors and a rest
  for (const std::uint32_t operands : {2u, 3u, 4u, 5u, 8u, 9u, 13u}) {
    std::vector<std::vector<float>> in;
    for (std::uint32_t r = 0; r < operands; ++r) {
      in.emplace_back(kCount, r == 0 ? 1.5f : nan(r));
      for (std::size_t i = 0; i < kCount; i += 3) in.back()[i] = nan(r);
    }
    EachIsa([&] {
      for (const dl_op op : {DL_SUM, DL_PRODUCT, DL_AVG, DL_MAX, DL_MIN}) {
        for (const StoreHint hint : {StoreHint::cached, StoreHint::streaming}) {
          const auto out = reduced<float>(in, DL_FLOAT32, op, static_cast<int>(operands), hint);
          for (std::size_t i = 0; i < kCount; ++i) {
            const auto expected = std::bit_cast<std::uint32_t>(nan(i % 3 == 0 ? 0 : 1));
            if (std::bit_cast<std::uint32_t>(out[i]) != expected) {
              FAIL_CHECK("op " << op << ", " << operands << " operands, at " << i);
              break;
            }
          }
        }
      }
    });
  }
}

TEST_CASE("integers wrap, and averages round towards zero") {
  EachIsa([] {
    CHECK(reduced<std::int8_t>({{127}, {1}}, DL_INT8, DL_SUM)[0] == -128);
    CHECK(reduced<std::int32_t>({{INT32_MAX}, {1}}, DL_INT32, DL_SUM)[0] == INT32_MIN);
    CHECK(reduced<std::int64_t>({{INT64_MAX}, {2}}, DL_INT64, DL_PRODUCT)[0] == -2);
    CHECK(reduced<std::int32_t>({{-3}, {-4}}, DL_INT32, DL_AVG, 2)[0] == -3);
    CHECK(reduced<std::int8_t>({{100}}, DL_INT8, DL_AVG, 200)[0] == 0);
    CHECK(reduced<std::uint8_t>({{0xf0}, {0x3c}}, DL_UINT8, DL_BXOR)[0] == 0xcc);
  });
}

TEST_CASE("all instruction sets, hints, alignments and operand counts give the same bits") {
  std::mt19937 random(9);
  for (int dtype = DL_INT8; dtype <= DL_FLOAT64; ++dtype) {
    for (int op = DL_SUM; op <= DL_BXOR; ++op) {
      const auto d = static_cast<dl_dtype>(dtype);
      const auto o = static_cast<dl_op>(op);
      if (!reducible(d, o)) continue;
      for (const std::size_t operands : {1u, 2u, 3u, 4u, 5u, 8u, 9u, 13u}) {
        if (kSanitized && (operands == 4 || operands == 8 || operands == 9)) continue;
        const std::size_t count = 3000 + random() % 100;
        std::vector<std::vector<double>> in(operands, std::vector<double>(count + 2));
        for (auto& v : in) {
          for (auto& x : v) x = std::ldexp(static_cast<double>(random() % 1000) + 0.37, 3);
        }
        std::vector<const void*> p;
        for (auto& v : in) p.push_back(reinterpret_cast<char*>(v.data()) + operands % 3);
        std::vector<char> first;
        EachIsa([&] {
          for (const StoreHint hint : {StoreHint::cached, StoreHint::streaming}) {
            std::vector<char> out((count + 2) * 8);
            reduce(p, out.data() + 5, count, d, o, static_cast<int>(operands), hint);
            if (first.empty()) first = out;
            CHECK(out == first);
          }
        });
      }
    }
  }
}

TEST_CASE("the result may replace any one operand") {
  for (std::size_t place = 0; place < 6; ++place) {
    std::vector<std::vector<int>> in(6, std::vector<int>(5000));
    for (std::size_t k = 0; k < 6; ++k) std::fill(in[k].begin(), in[k].end(), 1 << k);
    std::vector<const void*> p;
    for (auto& v : in) p.push_back(v.data());
    reduce(p, in[place].data(), 5000, DL_INT32, DL_SUM, 0);
    CHECK(in[place] == std::vector<int>(5000, 63));
  }
}

// Bytes that a reduction of two passes on meanwhile, at odd places.
class Elements {
 public:
  explicit Elements(std::size_t bytes) : bytes_(bytes), in_(bytes + 16), out_(bytes + 16, 'x') {
    for (std::size_t i = 0; i < in_.size(); ++i) in_[i] = static_cast<char>(i * 13 + i / 256);
    through_.resize(in_.size());
    for (std::size_t i = 0; i < in_.size(); ++i) through_[i] = static_cast<char>(in_[i] ^ 0x55);
    held_ = through_;
  }
  Passing passing() { return {.out = &out_[7], .through = &through_[3], .in = &in_[1]}; }
  void check() const {
    auto out = std::vector<char>(out_.size(), 'x'), through = held_;
    std::memcpy(&out[7], &held_[3], bytes_);
    std::memcpy(&through[3], &in_[1], bytes_);
    CHECK(out == out_);
    CHECK(through == through_);
  }

 private:
  std::size_t bytes_;
  std::vector<char> in_, out_, through_, held_;
};

TEST_CASE("the result may replace both of two operands, with the same bits") {
  std::mt19937 random(10);
  for (int dtype = DL_INT8; dtype <= DL_FLOAT64; ++dtype) {
    for (int op = DL_SUM; op <= DL_BXOR; ++op) {
      const auto d = static_cast<dl_dtype>(dtype);
      const auto o = static_cast<dl_op>(op);
      if (!reducible(d, o)) continue;
      const std::size_t count = 1000 + random() % 1000;
      std::vector<std::vector<double>> in(2, std::vector<double>(count + 2));
      for (auto& v : in) {
        for (auto& x : v) x = std::ldexp(static_cast<double>(random() % 1000) + 0.37, 3);
      }
      const auto at = [](std::vector<double>& v, std::size_t byte) {
        return reinterpret_cast<char*>(v.data()) + byte;
      };
      const std::array<const void*, 2> inputs = {at(in[0], 5), at(in[1], 0)};
      // Through the accumulator, as with more operands.
      std::vector<char> expected(count * 8);
      reduce(inputs, expected.data(), count, d, o, 2, StoreHint::streaming);
      EachIsa([&] {
        auto own = in;
        const std::array<const void*, 2> operands = {at(own[0], 5), at(own[1], 0)};
        const std::size_t element = dtype_bytes(d);
        Elements passed(count * element);
        reduce_pair(operands, at(own[0], 5), at(own[1], 0), count, d, o, 2, passed.passing());
        passed.check();
        CHECK(std::memcmp(at(own[0], 5), expected.data(), count * element) == 0);
        CHECK(std::memcmp(at(own[1], 0), expected.data(), count * element) == 0);
        // And not a byte more.
        const std::size_t rest = in[0].size() * 8 - 5 - count * element;
        CHECK(std::memcmp(at(own[0], 5 + count * element), at(in[0], 5 + count * element), rest) ==
              0);
        // Likewise with nothing that is passed meanwhile.
        auto alone = in;
        const std::array<const void*, 2> same = {at(alone[0], 5), at(alone[1], 0)};
        reduce_pair(same, at(alone[0], 5), at(alone[1], 0), count, d, o, 2);
        for (std::size_t k = 0; k < 2; ++k) {
          CHECK(std::memcmp(alone[k].data(), own[k].data(), own[k].size() * 8) == 0);
        }
      });
    }
  }
}

TEST_CASE("copies are exact, also around the caches") {
  std::vector<char> from(9000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 256);
  for (const std::size_t bytes :
       {0u, 1u, 63u, 64u, 255u, 256u, 257u, 511u, 512u, 575u, 1279u, 1280u, 1281u, 8900u}) {
    EachIsa([&] {
      for (const auto copy : {copy_cached, copy_streaming}) {
        std::vector<char> to(from.size(), 'x'), expected = to;
        copy(to.data() + 3, from.data() + 17, bytes);
        std::memcpy(expected.data() + 3, from.data() + 17, bytes);
        CHECK(to == expected);
      }
      for (const auto copy : {copy_through, copy_through_streaming}) {
        for (const bool back : {false, true}) {
          std::vector<char> to(from.size(), 'x'), expected = to, held = from;
          copy(to.data() + 3, held.data() + 17, back ? held.data() + 17 : from.data() + 50, bytes);
          std::memcpy(expected.data() + 3, from.data() + 17, bytes);
          CHECK(to == expected);
          expected = from;
          if (!back) std::memcpy(expected.data() + 17, from.data() + 50, bytes);
          CHECK(held == expected);
        }
      }
    });
  }
}

namespace {

// An 8-bit float by its definition.
struct Float8 {
  dl_dtype dtype;
  int fraction, bias;
  bool has_infinity;

  double value(unsigned bits) const {
    const int magnitude = static_cast<int>(bits & 0x7f), exponent = magnitude >> fraction;
    const int rest = magnitude & ((1 << fraction) - 1), ones = 1 << fraction;
    const double sign = bits & 0x80 ? -1 : 1;
    if (has_infinity ? magnitude > 0x7c : magnitude == 0x7f) return std::nan("");
    if (has_infinity && magnitude == 0x7c) return sign * INFINITY;
    return exponent == 0 ? sign * std::ldexp(rest, 1 - bias - fraction)
                         : sign * std::ldexp(ones + rest, exponent - bias - fraction);
  }
  // The nearest code; ties to an even one. One step beyond the largest number is the first code
  // that is none.
  unsigned nearest(double x) const {
    const unsigned largest = has_infinity ? 0x7b : 0x7e;
    const double size = std::fabs(x),
                 next = std::ldexp(1, has_infinity ? 16 : 8) * (has_infinity ? 1 : 1.875);
    const auto at = [&](unsigned code) { return code > largest ? next : value(code); };
    unsigned code = 0;
    while (code <= largest && at(code + 1) <= size) ++code;
    if (code <= largest) {
      const double below = size - at(code), above = at(code + 1) - size;
      if (above < below || (above == below && code % 2 == 1)) ++code;
    }
    return (std::signbit(x) ? 0x80U : 0U) | std::min(code, largest + 1);
  }
};
constexpr Float8 kFloat8[] = {{DL_FLOAT8_E4M3, 3, 7, false}, {DL_FLOAT8_E5M2, 2, 15, true}};

}  // namespace

TEST_CASE("8-bit floats: sums of all pairs round to nearest even; too much is NaN or infinite") {
  std::vector<std::uint8_t> a, b;
  for (unsigned i = 0; i < 65536; ++i) {
    a.push_back(static_cast<std::uint8_t>(i));
    b.push_back(static_cast<std::uint8_t>(i >> 8));
  }
  EachIsa([&] {
    for (const Float8& format : kFloat8) {
      const auto same = reduced<std::uint8_t>({a}, format.dtype, DL_SUM);
      const auto sum = reduced<std::uint8_t>({a, b}, format.dtype, DL_SUM);
      const auto largest = reduced<std::uint8_t>({a, b}, format.dtype, DL_MAX);
      for (std::size_t i = 0; i < a.size(); i += kSanitized ? 5 : 1) {
        const double x = format.value(a[i]), y = format.value(b[i]);
        CHECK((std::isnan(x) ? std::isnan(format.value(same[i])) : same[i] == a[i]));
        const float exact = static_cast<float>(x + y);
        CHECK((std::isnan(exact) ? std::isnan(format.value(sum[i]))
                                 : sum[i] == format.nearest(static_cast<double>(exact))));
        if (!std::isnan(x) && !std::isnan(y)) CHECK(format.value(largest[i]) == std::max(x, y));
      }
    }
  });
}

TEST_CASE("8-bit floats: many operands are added in binary32 and rounded once") {
  EachIsa([] {
    // 8 + 0.5 + 0.5: each addition alone would be rounded to 8.
    CHECK(reduced<std::uint8_t>({{0x50}, {0x30}, {0x30}}, DL_FLOAT8_E4M3, DL_SUM)[0] == 0x51);
    // An average of the largest numbers stays in range.
    CHECK(reduced<std::uint8_t>({{0x7e}, {0x7e}}, DL_FLOAT8_E4M3, DL_AVG, 2)[0] == 0x7e);
  });
}

TEST_CASE("complex numbers: sums, averages and products") {
  EachIsa([] {
    for (const std::size_t count : {1UL, 5UL, 3001UL}) {
      std::vector<float> a, b, c;
      for (std::size_t i = 0; i < count; ++i) {
        for (auto* to : {&a, &b, &c}) {
          to->push_back(static_cast<float>(i % 7) - 3);
          to->push_back(static_cast<float>(to == &a ? 2 : 1));
        }
      }
      const std::vector<const void*> in = {a.data(), b.data(), c.data()};
      std::vector<float> sum(2 * count), average(2 * count), product(2 * count);
      reduce(in, sum.data(), count, DL_COMPLEX64, DL_SUM, 0);
      reduce(in, average.data(), count, DL_COMPLEX64, DL_AVG, 2);
      for (const StoreHint hint : {StoreHint::cached, StoreHint::streaming}) {
        reduce(in, product.data(), count, DL_COMPLEX64, DL_PRODUCT, 0, hint);
        for (std::size_t i = 0; i < count; ++i) {
          const float x = a[2 * i];  // (x+2i)(x+i)(x+i)
          CHECK(sum[2 * i] == 3 * x);
          CHECK(average[2 * i + 1] == 2);
          CHECK(product[2 * i] == x * x * x - 5 * x);
          CHECK(product[2 * i + 1] == 4 * x * x - 2);
        }
      }
    }
    std::vector<double> a = {0, 1}, b = {0, 1}, also(2);
    const void* both[] = {a.data(), b.data()};
    reduce_pair(both, a.data(), also.data(), 1, DL_COMPLEX128, DL_PRODUCT, 0);
    CHECK(a == std::vector<double>{-1, 0});
    CHECK(also == a);
  });
  std::mt19937 random(7);
  std::normal_distribution<float> any;
  std::vector<float> a(2002), b(2002), expected(2002);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = any(random);
    b[i] = any(random);
  }
  for (std::size_t i = 0; i < a.size(); i += 2) {
    const float products[] = {a[i] * b[i], a[i + 1] * b[i + 1], a[i] * b[i + 1], a[i + 1] * b[i]};
    expected[i] = products[0] - products[1];
    expected[i + 1] = products[2] + products[3];
  }
  EachIsa([&] {  // each product is rounded, also where a machine has fused operations
    std::vector<float> out(2002);
    const void* const both[] = {a.data(), b.data()};
    reduce(both, out.data(), 1001, DL_COMPLEX64, DL_PRODUCT, 0);
    CHECK(out == expected);
    reduce(both, out.data(), 1001, DL_COMPLEX64, DL_PRODUCT, 0, StoreHint::streaming);
    CHECK(out == expected);
  });
  CHECK_FALSE(reducible(DL_COMPLEX64, DL_MAX));
  CHECK_FALSE(reducible(DL_COMPLEX128, DL_BAND));
  CHECK_FALSE(reducible(DL_FLOAT8_E5M2, DL_BXOR));
}
