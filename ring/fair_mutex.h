// FairMutex: a mutex that threads get in the order in which they have asked for it. A thread that
// unlocks a std::mutex and locks it again at once usually gets it before those that wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace dlaunch {

class FairMutex {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const std::uint64_t turn = asked_++;
    changed_.wait(lock, [&] { return turn == served_; });
  }
  void unlock() {
    const std::lock_guard lock(mutex_);
    ++served_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t asked_ = 0, served_ = 0;
};

}  // namespace dlaunch
