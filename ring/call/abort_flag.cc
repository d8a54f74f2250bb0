#include "ring/call/abort_flag.h"

#include <utility>

#include "base/failpoint.h"

namespace dlaunch {

Error AbortFlag::error() const {
  const std::lock_guard lock(mutex_);
  DL_ASSERT(raised());
  return error_;
}

bool AbortFlag::told(Duration patience) const {
  std::unique_lock lock(mutex_);
  return now_raised_.wait_for(lock, patience, [this] { return raised(); });
}

bool AbortFlag::raise(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (raised()) return false;
    error_ = std::move(error);
    raised_.store(true, std::memory_order_seq_cst);
  }
  // From now on the list does not change. Wake without the lock: a woken thread asks for the error
  // at once, and would sleep again until this thread has its turn.
  failpoint("abort_flag.raised");
  now_raised_.notify_all();
  for (const auto& wake : wakers_) wake();
  return true;
}

void AbortFlag::on_raise(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  if (raised()) return wake();
  wakers_.push_back(std::move(wake));
}

}  // namespace dlaunch
