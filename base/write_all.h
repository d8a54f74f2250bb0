// Writes to a file, a pipe or another slow descriptor.
#pragma once

#include <cstddef>
#include <string_view>

namespace dlaunch {

struct Written {
  std::size_t bytes = 0;
  int os_errno = 0;  // the error that stopped it; 0: all is written
};

// Blocks until all is written, or an error stops it; a signal does not.
Written write_all(int fd, std::string_view bytes);

}  // namespace dlaunch
