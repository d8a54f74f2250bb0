// The gain of an all_reduce in the background: work of the caller's own to hide it behind, and how
// much of it was hidden.
#pragma once

#include <cstddef>

#include <dlaunch/ring.h>

namespace bench {

// Keeps the core busy for so many steps, and touches no memory.
void compute(long steps);
// The present duration of a step here.
double compute_step_us();

// For two tasks that take `comm` and `compute` alone and `both` together: 0 if they took turns,
// 100 if the shorter one cost nothing.
double hidden_percent(double comm_us, double compute_us, double both_us);

// Imitates a training step: of kTensors gradients, the last one first, each is computed, in so
// many steps for all, and then summed in place by a dl::GradientBucketer, in some buckets, while
// earlier ones are computed. Returns the time of one such step; collective. Throws dl::Error.
inline constexpr std::size_t kTensors = 16;
double bucketed_us(dl_comm* comm, float* gradients, std::size_t count, long steps);

}  // namespace bench
