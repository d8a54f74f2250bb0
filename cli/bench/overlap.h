// What a program gains by an all_reduce in the background: work of the caller's own to hide it
// behind, and how much of it was hidden.
#pragma once

namespace bench {

// Keeps the core busy for so many steps, and touches no memory.
void compute(long steps);
// How long a step takes here, now.
double compute_step_us();

// Of two things that take `comm` and `compute` alone and `both` together: 0 if they took turns, 100
// if the shorter one cost nothing.
double hidden_percent(double comm_us, double compute_us, double both_us);

}  // namespace bench
