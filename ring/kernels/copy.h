// Copies of users' data, by kernels dispatched at run time as those of reduce.h are. Pure.
#pragma once

#include <cstddef>

namespace dlaunch {

// memcpy by vector stores. That of glibc leaves some KiB and more to rep movsb, which Zen 3 and 4
// do at a tenth of the speed where the target lies 1 to 31 bytes further into its page than the
// source (sourceware.org, bug 30994): so does malloc's large memory, by 16, beside staging.
void copy_cached(void* out, const void* in, std::size_t bytes);

// The same around the caches; copy_cached() where the machine has no such stores.
void copy_streaming(void* out, const void* in, std::size_t bytes);

// `out` takes what `through` holds, and that takes `in`, which may be `through` itself; else none
// may overlap another.
void copy_through(void* out, void* through, const void* in, std::size_t bytes);
// With `out` around the caches.
void copy_through_streaming(void* out, void* through, const void* in, std::size_t bytes);

}  // namespace dlaunch
