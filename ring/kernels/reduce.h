// Reduction kernels on the CPU: every dtype and op of ring.h, any number of operands in one pass,
// dispatched at run time to AVX-512, AVX2 or portable code with equal bits. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "dlaunch/ring.h"

namespace dlaunch {

// False for pairs that have no meaning (bitwise ops on floats).
bool reducible(dl_dtype dtype, dl_op op);

// streaming: the result is written around the caches, for results larger than what they hold that
// nobody reads soon.
enum class StoreHint { cached, streaming };

// out[i] = in[0][i] op in[1][i] op … (left to right, in operand order), i < count.
// At least one operand. `out` may be exactly one of the operands; it must not overlap one
// otherwise. 16-bit floats are widened, combined over all operands in binary32 and rounded once (to
// nearest even). AVG sums like SUM and, if divisor > 0, divides the result by it (callers that
// reduce in several steps give the divisor in the last one only). No FMA contraction: equal bits
// everywhere, except that which of several NaN operands' payload survives is not specified.
void reduce(std::span<const void* const> in, void* out, std::size_t count, dl_dtype dtype, dl_op op,
            int divisor, StoreHint hint = StoreHint::cached);

// What is moved beside a reduction, as many bytes as that has: `out` takes what `through` holds,
// and that takes `in`. None may overlap another.
struct Passing {
  void* out = nullptr;  // nullptr: nothing
  void* through = nullptr;
  const void* in = nullptr;
};

// reduce() of two operands with the result in two places, each of which may be exactly one of them.
// `passing` takes turns with it, some lines each, for a core to load from memory what it needs of
// the one while it has the other in its caches.
void reduce_pair(std::span<const void* const, 2> in, void* out, void* also, std::size_t count,
                 dl_dtype dtype, dl_op op, int divisor, const Passing& passing = {});

// The instruction sets the kernels exist for, best last. Tests force one to compare their bits;
// a level that the machine lacks is refused (false).
enum class Isa { portable, avx2, avx512 };
bool use_isa(Isa isa);

}  // namespace dlaunch
