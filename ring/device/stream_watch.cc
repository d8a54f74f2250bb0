#include "ring/device/stream_watch.h"

#include <utility>

#include "base/quiet_thread.h"

namespace dlaunch {

StreamWatch::~StreamWatch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<CallEvents> StreamWatch::events() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return under_way_.size() < kUnderWay; });
    if (!unused_.empty()) {
      CallEvents events = std::move(unused_.back());
      unused_.pop_back();
      return events;
    }
  }
  auto begun = make_device_event();
  if (!begun) return begun.error();
  auto passed = make_device_event();
  if (!passed) return passed.error();
  return CallEvents{std::move(*begun), std::move(*passed)};
}

Result<void> StreamWatch::add(Watched watched) {
  if (!thread_.joinable()) {
    auto thread = start_quiet_thread([this] { main(); });
    if (!thread) return thread.error();
    thread_ = std::move(*thread);
  }
  {
    const std::lock_guard lock(mutex_);
    under_way_.push_back(std::move(watched));
  }
  changed_.notify_all();
  return {};
}

bool StreamWatch::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return under_way_.empty(); });
  return !failed_;
}

void StreamWatch::main() {
  const CurrentContext current(context_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !under_way_.empty(); });
    if (under_way_.empty()) return;
    Watched& first = under_way_.front();  // does not move while others are added
    lock.unlock();
    const Result<void> done = await_(first);
    first.ended(!done);
    lock.lock();
    failed_ |= !done;
    unused_.push_back(std::move(first.events));
    under_way_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace dlaunch
