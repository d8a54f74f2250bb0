// DL_ASSERT: for bugs in dlaunch itself, never for operating failures (those are a Result). It
// stays on in release builds: it prints the expression and its place, then aborts.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace dlaunch {

[[noreturn]] inline void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "dlaunch: bug: assertion '%s' failed at %s:%d\n", expression, file, line);
  std::abort();
}

}  // namespace dlaunch

#define DL_ASSERT(expression) \
  ((expression) ? (void)0 : ::dlaunch::assertion_failed(#expression, __FILE__, __LINE__))
