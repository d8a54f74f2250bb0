// Short turns on the processor, for a thread that sleeps until something has gone wrong.
#pragma once

namespace dlaunch {

// Asks the kernel to give the calling thread short turns, and in return each sooner: when it wakes
// it goes before those that compute (the request size of EEVDF, Linux 6.12 and later; Stoica and
// Abdel-Wahab 1995). Its share of a core stays the same. The processes that it starts are as
// before. Without effect elsewhere and on threads of real-time or raised priority.
void ask_for_short_turns();

}  // namespace dlaunch
