// Whether a sanitizer watches this program. A test that repeats one path, or tries many sizes, then
// tries fewer: the ordinary build tries all of them, and a sanitizer finds its faults in the first
// of each kind.
#pragma once

namespace dlaunch {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dlaunch
