#include "ring/links/descriptor_limit.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <mutex>

#include "base/unique_fd.h"

namespace dlaunch {
namespace {

constexpr rlim_t kForTheProgram = 128;

}  // namespace

void allow_descriptors(std::size_t more) {
  static std::mutex mutex;  // prevents a thread from undoing the raise of another one
  const std::lock_guard lock(mutex);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  // At most as many descriptors are open as its number says; if there is none the limit is reached.
  const UniqueFd next(::eventfd(0, EFD_CLOEXEC));
  const rlim_t open = next ? static_cast<rlim_t>(next.get()) : limit.rlim_cur;
  const rlim_t needed = open + more + kForTheProgram;
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace dlaunch
