#include "ring/kernels/reduce.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/flight.h"
#include "ring/kernels/codec_kernels.h"
#include "ring/kernels/copy.h"
#include "ring/kernels/program_op.h"

namespace dlaunch {
namespace {

bool machine_has(Isa isa) {
#if defined(DL_X86_KERNELS)
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") != 0;
  if (isa == Isa::avx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Isa::portable;
}

Kernels kernels_of(Isa isa) {
#if defined(DL_X86_KERNELS)
  if (isa == Isa::avx2) return kernels_avx2();
  if (isa == Isa::avx512) return kernels_avx512();
#endif
  (void)isa;
  return {reduce_any, scale_any, copy, stream, pass, pass_streaming, kCodecKernels};
}

Kernels& chosen() {
  static Kernels kernels = kernels_of(machine_has(Isa::avx512) ? Isa::avx512
                                      : machine_has(Isa::avx2) ? Isa::avx2
                                                               : Isa::portable);
  return kernels;
}

// Complex numbers as twice as many real ones; other types as they are.
struct Reals {
  dl_dtype dtype;
  std::size_t count;
};
Reals reals_of(dl_dtype dtype, std::size_t count) {
  if (!is_complex(dtype)) return {dtype, count};
  return {dtype == DL_COMPLEX64 ? DL_FLOAT32 : DL_FLOAT64, 2 * count};
}

ReduceArgs args_of(std::span<const void* const> in, void* out, std::size_t count, dl_dtype dtype,
                   dl_op op, int divisor) {
  DL_ASSERT(reducible(dtype, op));
  const Reals all = op == DL_PRODUCT ? Reals{dtype, count} : reals_of(dtype, count);
  return {.in = in.data(),
          .operands = in.size(),
          .out = out,
          .count = all.count,
          .dtype = all.dtype,
          .op = op == kPremulSum ? DL_SUM : op,
          .divisor = op == DL_AVG ? divisor : 0};
}

}  // namespace

std::size_t element_bytes(dl_dtype dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  return index < std::size(kDtypeBytes) ? kDtypeBytes[index] : 0;
}

bool reducible(dl_dtype dtype, dl_op op) {
  const bool bitwise = op == DL_BAND || op == DL_BOR || op == DL_BXOR;
  if (op == kPremulSum) return dtype >= DL_FLOAT16;
  if ((op == DL_MAX || op == DL_MIN) && is_complex(dtype)) return false;
  return !bitwise || dtype < DL_FLOAT16;
}

void scale(const void* in, void* out, std::size_t count, dl_dtype dtype, double factor) {
  DL_ASSERT(reducible(dtype, kPremulSum));
  const Reals all = reals_of(dtype, count);
  chosen().scale(out, in, all.count, all.dtype, factor);
}

// By the product with one, which rounds it.
FactorBytes factor_in(dl_dtype dtype, double factor) {
  FactorBytes one{};
  const auto set = [&one](auto bits) { std::memcpy(one.data(), &bits, sizeof bits); };
  if (dtype == DL_FLOAT16) set(std::uint16_t{0x3c00});
  if (dtype == DL_BFLOAT16) set(std::uint16_t{0x3f80});
  const dl_dtype real = reals_of(dtype, 1).dtype;
  if (real == DL_FLOAT32) set(1.0F);
  if (real == DL_FLOAT64) set(1.0);
  scale(one.data(), one.data(), 1, real, factor);
  return one;
}

void reduce(std::span<const void* const> in, void* out, std::size_t count, dl_dtype dtype, dl_op op,
            int divisor, StoreHint hint) {
  DL_ASSERT(!in.empty());
  if (is_function(op)) return reduce_by_function(in, out, count, dtype, op);
  ReduceArgs args = args_of(in, out, count, dtype, op, divisor);
  args.streaming = hint == StoreHint::streaming;
  chosen().reduce(args);
}

void reduce_pair(std::span<const void* const, 2> in, void* out, void* also, std::size_t count,
                 dl_dtype dtype, dl_op op, int divisor, const Passing& passing) {
  DL_ASSERT(also != nullptr);
  if (is_function(op)) {
    const std::size_t bytes = count * element_bytes(dtype);
    reduce_by_function(in, out, count, dtype, op);
    copy_cached(also, out, bytes);
    if (passing.out != nullptr) copy_through(passing.out, passing.through, passing.in, bytes);
    return;
  }
  ReduceArgs args = args_of(in, out, count, dtype, op, divisor);
  args.also = also;
  args.pass_out = passing.out;
  args.pass_through = passing.through;
  args.pass_in = passing.in;
  chosen().reduce(args);
}

const Kernels& kernels() { return chosen(); }

bool use_isa(Isa isa) {
  if (!machine_has(isa)) return false;
  chosen() = kernels_of(isa);
  return true;
}

}  // namespace dlaunch
