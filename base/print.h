// Text, or bytes, for standard output.
#pragma once

#include <cstdio>
#include <string_view>

namespace dlaunch {

// False: the write is incomplete; errno has the reason.
inline bool print_all(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

}  // namespace dlaunch
