// Reduction kernels on the CPU: every dtype and op of ring.h, any number of operands in one pass,
// dispatched at run time to AVX-512, AVX2 or portable code with equal bits. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "dlaunch/ring.h"

namespace dlaunch {

// False for pairs that have no meaning (bitwise ops on floats).
bool reducible(dl_dtype dtype, dl_op op);

enum class StoreHint { cached, streaming };  // streaming: non-temporal stores of the result

// out[i] = in[0][i] op in[1][i] op … (left to right, in operand order), i < count.
// At least one operand. `out` may be exactly one of the operands; it must not overlap one otherwise.
// 16-bit floats are widened, combined over all operands in binary32 and rounded once (to nearest
// even). AVG sums like SUM and, if divisor > 0, divides the result by it (callers that reduce in
// several steps give the divisor in the last one only). No FMA contraction: equal bits everywhere.
void reduce(std::span<const void* const> in, void* out, std::size_t count, dl_dtype dtype,
            dl_op op, int divisor, StoreHint hint = StoreHint::cached);

}  // namespace dlaunch
