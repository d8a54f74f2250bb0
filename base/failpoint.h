// Failpoints: named places at the edges of the protocols, where tests have something happen to this
// very process: it is killed there, stops, is late, or writes less than it wanted. They exist only
// in the library that tests/support builds with DL_FAILPOINTS; what is shipped has nothing of them.
// Names are "file.edge". Called by any thread. Included by .cc files only, which stand in their
// layer's list of those that are built once more (`…_failpoint_sources` in its meson.build).
#pragma once

#include <sys/uio.h>

#include <cstddef>

namespace dlaunch {

#ifdef DL_FAILPOINTS

// Defined by the test program.
void failpoint(const char* name);
// Before a write of so many bytes to a stream: how many of them, at least one, are to be tried.
std::size_t failpoint_write(const char* name, std::size_t bytes);

#else

inline void failpoint(const char*) {}
inline std::size_t failpoint_write(const char*, std::size_t bytes) { return bytes; }

#endif

// The same of a write of several pieces, which are cut at their end.
inline void failpoint_write(const char* name, iovec* pieces, std::size_t count, std::size_t bytes) {
  for (std::size_t cut = bytes - failpoint_write(name, bytes); cut > 0; --count) {
    iovec& last = pieces[count - 1];
    const std::size_t here = cut < last.iov_len ? cut : last.iov_len;
    last.iov_len -= here;
    cut -= here;
  }
}

}  // namespace dlaunch
