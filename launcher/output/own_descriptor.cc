#include "launcher/output/own_descriptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include <string>

namespace dlaunch {

UniqueFd open_anew(int fd, int access) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(::open(path.c_str(), access | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

UniqueFd watch_of(int fd, int access) {
  UniqueFd watch(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event ready{};
  ready.events = access == O_RDONLY ? EPOLLIN : EPOLLOUT;
  if (watch && ::epoll_ctl(watch.get(), EPOLL_CTL_ADD, fd, &ready) != 0) watch.reset();
  return watch;
}

bool same_target(int a, int b) {
  struct stat sa {
  }, sb{};
  return ::fstat(a, &sa) == 0 && ::fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

}  // namespace dlaunch
