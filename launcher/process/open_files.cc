#include "launcher/process/open_files.h"

#include <sys/resource.h>

#include <cerrno>

#include <fmt/format.h>

namespace dlaunch {

Result<void> check_open_files(int workers, int ports) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto needed = static_cast<rlim_t>(workers) * 8 + static_cast<rlim_t>(ports) * 2 + 64;
  if (limit.rlim_cur >= needed) return {};
  return Error{
      .code = Errc::io,
      .what = fmt::format("{} workers{} need {} open files, but the limit is {}: raise it "
                          "with ulimit -Hn",
                          workers, ports > 0 ? " with a port each" : "", needed, limit.rlim_cur),
      .os_errno = EMFILE};
}

}  // namespace dlaunch
