// Reduction kernels on the CPU: every dtype and op of ring.h, any number of operands in one pass,
// dispatched at run time to AVX-512, AVX2 or portable code with equal bits. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "dlaunch/ring.h"

namespace dlaunch {

// 0 for a value outside the enum.
std::size_t element_bytes(dl_dtype dtype);

constexpr bool is_complex(dl_dtype dtype) {
  return dtype == DL_COMPLEX64 || dtype == DL_COMPLEX128;
}

constexpr bool is_float8(dl_dtype dtype) {
  return dtype == DL_FLOAT8_E4M3 || dtype == DL_FLOAT8_E5M2;
}

// False for pairs that have no meaning (bitwise ops on floats, the larger complex number).
bool reducible(dl_dtype dtype, dl_op op);

// streaming: writes the result around the caches, for results larger than the caches that no rank
// reads soon.
enum class StoreHint { cached, streaming };

// out[i] = in[0][i] op in[1][i] op … (left to right, in operand order), i < count. At least one
// operand. `out` may be exactly one of the operands; otherwise it must not overlap one. Floats of
// 8 and 16 bits are widened, combined over all operands in binary32 and rounded once (to nearest
// even). AVG sums like SUM and, if divisor > 0, divides the result by it (callers that reduce in
// several steps give the divisor only in the last one). No FMA contraction: equal bits everywhere,
// except that of several NaN operands any one's payload may survive. By a function of the program:
// see ring/kernels/program_op.h.
void reduce(std::span<const void* const> in, void* out, std::size_t count, dl_dtype dtype, dl_op op,
            int divisor, StoreHint hint = StoreHint::cached);

// out[i] = in[i] * factor, i < count, for floats: the factor is rounded to their type, and then the
// product. `out` may be `in`; otherwise they must not overlap. Floats of 8 and 16 bits are
// multiplied in binary32. Both parts of a complex number are multiplied.
void scale(const void* in, void* out, std::size_t count, dl_dtype dtype, double factor);

// A factor as one element of a type of floats, for libraries that want it so.
using FactorBytes = std::array<unsigned char, 16>;
FactorBytes factor_in(dl_dtype dtype, double factor);

// A copy beside a reduction, of as many bytes: copies `through` to `out`, and `in` to `through`. No
// two may overlap.
struct Passing {
  void* out = nullptr;  // nullptr: nothing
  void* through = nullptr;
  const void* in = nullptr;
};

// reduce() of two operands with the result in two places, each of which may be exactly one operand.
// `passing` takes turns with it, some lines each, so that a core loads data for one from memory
// while it works on the other in its caches.
void reduce_pair(std::span<const void* const, 2> in, void* out, void* also, std::size_t count,
                 dl_dtype dtype, dl_op op, int divisor, const Passing& passing = {});

// The instruction sets of the kernels, best last. Tests force one to compare bits; use_isa()
// refuses (false) a level that the machine lacks.
enum class Isa { portable, avx2, avx512 };
bool use_isa(Isa isa);

}  // namespace dlaunch
