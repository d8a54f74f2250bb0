// Failpoints: named places at the edges of the protocols, where tests can kill or stop this very
// process, delay it, shorten its writes, or change its data. They exist only in the library that
// tests/support builds with DL_FAILPOINTS; shipped code has none. Names are "file.edge". Any thread
// calls them. Only .cc files include this, and their layer's meson.build lists them for the second
// build (`…_failpoint_sources`).
#pragma once

#include <sys/uio.h>

#include <cstddef>

namespace dlaunch {

#ifdef DL_FAILPOINTS

inline constexpr bool kHasFailpoints = true;  // for what only a failpoint needs
// The test program defines it.
void failpoint(const char* name);
// Before a write of so many bytes to a stream: how many of them, at least one, to try.
std::size_t failpoint_write(const char* name, std::size_t bytes);
// The process has just made these data, or taken them in.
void failpoint_data(const char* name, void* data, std::size_t bytes);

#else

inline constexpr bool kHasFailpoints = false;
inline void failpoint(const char*) {}
inline std::size_t failpoint_write(const char*, std::size_t bytes) { return bytes; }
inline void failpoint_data(const char*, void*, std::size_t) {}

#endif

// The same for a write of several pieces, which it cuts at their end.
inline void failpoint_write(const char* name, iovec* pieces, std::size_t count, std::size_t bytes) {
  for (std::size_t cut = bytes - failpoint_write(name, bytes); cut > 0; --count) {
    iovec& last = pieces[count - 1];
    const std::size_t here = cut < last.iov_len ? cut : last.iov_len;
    last.iov_len -= here;
    cut -= here;
  }
}

}  // namespace dlaunch
