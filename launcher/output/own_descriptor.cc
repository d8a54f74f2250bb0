#include "launcher/output/own_descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <string>

namespace dlaunch {

UniqueFd open_anew(int fd, int access) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(::open(path.c_str(), access | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

bool same_target(int a, int b) {
  struct stat sa {
  }, sb{};
  return ::fstat(a, &sa) == 0 && ::fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

}  // namespace dlaunch
