#include "base/write_all.h"

#include <unistd.h>

#include <cerrno>

namespace dlaunch {

Written write_all(int fd, std::string_view bytes) {
  Written done;
  while (done.bytes < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done.bytes, bytes.size() - done.bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {done.bytes, n < 0 ? errno : EIO};
    done.bytes += static_cast<std::size_t>(n);
  }
  return done;
}

}  // namespace dlaunch
