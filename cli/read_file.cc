#include "cli/read_file.h"

#include <fcntl.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace dlaunch {

Result<std::string> read_file(const std::string& path) {
  constexpr std::size_t kLargest = 16u << 20;
  const auto failed = [&](int err) {
    Error error = errno_error("read " + path, err);
    error.code = Errc::not_found;
    return error;
  };
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return failed(errno);
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > kLargest) return failed(EFBIG);
  }
}

}  // namespace dlaunch
