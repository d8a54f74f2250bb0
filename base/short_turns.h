// Short turns on the processor, for a thread that sleeps until something has gone wrong.
#pragma once

namespace dlaunch {

// Asks the kernel for short but early turns for the calling thread: when it wakes, it goes before
// threads that compute (the request size of EEVDF, Linux 6.12 and later; Stoica and Abdel-Wahab
// 1995). Its share of a core stays the same. Its child processes do not inherit this. No effect
// elsewhere, nor on threads of real-time or raised priority.
void ask_for_short_turns();

}  // namespace dlaunch
