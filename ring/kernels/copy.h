// Copies of users' data, by kernels dispatched at run time like those of reduce.h. Pure.
#pragma once

#include <cstddef>

namespace dlaunch {

// memcpy by vector stores. glibc's memcpy uses rep movsb from some KiB on, which Zen 3 and 4 do at
// a tenth of the speed if the target lies 1 to 31 bytes further into its page than the source
// (sourceware.org, bug 30994). Large memory of malloc lies so, by 16, relative to staging memory.
void copy_cached(void* out, const void* in, std::size_t bytes);

// copy_cached() around the caches; equal to it on machines without such stores.
void copy_streaming(void* out, const void* in, std::size_t bytes);

// Copies `through` to `out`, and `in` to `through`. `in` may be `through` itself; otherwise no two
// may overlap.
void copy_through(void* out, void* through, const void* in, std::size_t bytes);
// copy_through() with stores to `out` around the caches.
void copy_through_streaming(void* out, void* through, const void* in, std::size_t bytes);

}  // namespace dlaunch
