// DeathWatch: a rank hears of the death of another one on its host from the kernel, at once. A
// process that is killed first gives back its memory, 20 ms for a GiB, and only then are its
// sockets closed. But before all that the kernel goes through the locks that its threads held
// (set_robust_list(2), get_robust_list(2)): each rank has a thread that holds one in shared memory,
// and sleeps until another rank's is marked as that of a dead owner. Costs nothing meanwhile.
//
// Needs futex_waitv(2), Linux 5.16, and at most 127 other ranks; without, sockets have to do.
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
  std::shared_ptr<void> keep;  // what unmaps them
};

class DeathWatch {
 public:
  // died(i), in the watch's thread and once for each: the process of i was killed, crashed, or has
  // exited with its watch still there. What it had sent before may not have been read yet. Null
  // where the kernel cannot do it.
  static std::unique_ptr<DeathWatch> start(int own, Lives lives, std::function<void(int)> died);
  // Leaves: nobody hears of this one any more.
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
  std::vector<bool> over_;  // dead or left; the thread's
  std::atomic<std::uint32_t> stop_{0};
  std::thread thread_;
};

}  // namespace dlaunch
