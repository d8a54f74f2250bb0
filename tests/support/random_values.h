// Values that every rank can compute for every other one: element i of an input is a function of a
// key and i. Also the right results of reductions, written independently of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <dlaunch/ring.h>

namespace random_ops {

std::uint64_t mix(std::uint64_t x);

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  int under(int n) { return static_cast<int>(below(static_cast<std::size_t>(n))); }
  bool chance(int permille) { return under(1000) < permille; }

 private:
  std::uint64_t state_;
};

// bits: any, for data that are only moved. For floats in reductions: whole numbers of one digit;
// finite ones whose sums round; or NaN, infinities, zeros of both signs, denormals and the largest.
enum class Flavour { bits, whole, rounding, special };

bool is_float(dl_dtype dtype);

// In place of a dl_op: operations of this program. Both work on the bits of an element. The first
// one is a composition of affine functions, which does not commute.
constexpr auto kOwnInOrder = static_cast<dl_op>(100), kOwnCommuting = static_cast<dl_op>(101);
constexpr bool is_own(dl_op op) { return op == kOwnInOrder || op == kOwnCommuting; }
// A sum of products. The factor of each rank is a power of two.
constexpr auto kPremul = static_cast<dl_op>(102);
// What a call of this rank takes for it.
dl_op made_op(dl_op op, int rank);

// Elements [first, first + count) of the input with this key.
void fill(void* to, std::uint64_t key, std::size_t first, std::size_t count, dl_dtype dtype,
          Flavour flavour);

// The same elements of `op` over the inputs with these keys, taken in this order.
void fill_reduced(void* to, const std::vector<std::uint64_t>& keys, std::size_t first,
                  std::size_t count, dl_dtype dtype, dl_op op, Flavour flavour);

// "" or the first difference. `op`: the origin of the values, which leaves open a NaN's bits, and
// the sign of a zero that is a maximum or minimum; null: bit by bit.
std::string difference(const void* got, const void* want, std::size_t count, dl_dtype dtype,
                       const dl_op* op);

}  // namespace random_ops
