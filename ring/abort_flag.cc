#include "ring/abort_flag.h"

#include <utility>

#include "base/failpoint.h"

namespace dlaunch {

Error AbortFlag::error() const {
  const std::lock_guard lock(mutex_);
  DL_ASSERT(raised());
  return error_;
}

bool AbortFlag::raise(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (raised()) return false;
    error_ = std::move(error);
    raised_.store(true, std::memory_order_seq_cst);
  }
  // The list stays as it is from now on. Without the lock: who is woken asks for the error at once,
  // and would sleep again until this thread has its turn.
  failpoint("abort_flag.raised");
  for (const auto& wake : wakers_) wake();
  return true;
}

void AbortFlag::on_raise(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  if (raised()) return wake();
  wakers_.push_back(std::move(wake));
}

}  // namespace dlaunch
