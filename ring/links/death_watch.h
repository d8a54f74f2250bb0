// DeathWatch: the kernel tells a rank at once that another one on its host has died. When a process
// is killed it first gives back its memory, 20 ms for a GiB, and only then closes its sockets. But
// before all that the kernel goes through the locks that its threads held (set_robust_list(2),
// get_robust_list(2)). Each rank has a thread that holds one lock in shared memory, and sleeps
// until the kernel marks another rank's lock as that of a dead owner. It costs nothing meanwhile.
//
// Needs futex_waitv(2), Linux 5.16, and at most 127 other ranks; otherwise the ranks rely on
// sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace dlaunch {

// The locks of a host's ranks, zero at first, in memory that all of them map.
struct Lives {
  std::vector<std::atomic<std::uint32_t>*> words;
  std::shared_ptr<void> keep;  // unmaps them
};

class DeathWatch {
 public:
  // died(i), on the watch's thread and once for each rank: the process of i was killed, crashed, or
  // has exited with its watch in place. Bytes that it sent before may still be unread. Null if the
  // kernel lacks support.
  static std::unique_ptr<DeathWatch> start(int own, Lives lives, std::function<void(int)> died);
  // Leaves: the other ranks do not see the end of this one.
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

 private:
  DeathWatch(int own, Lives lives, std::function<void(int)> died);
  void watch();
  void look_and_sleep();

  const std::size_t own_;
  const Lives lives_;
  const std::function<void(int)> died_;
  std::vector<bool> over_;  // dead or left; only for the thread
  std::atomic<std::uint32_t> stop_{0};
  std::thread thread_;
};

}  // namespace dlaunch
