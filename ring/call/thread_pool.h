// ThreadPool: the threads that carry out the background work of this process's communicators. A
// communicator borrows one while it has work and gives it back afterwards, so hundreds of idle
// communicators hold no thread. The pool makes a thread when none is free, and ends threads that
// have long been free, but for two.
//
// Thread-safe. Users of the pool keep it alive; its threads end with its last user.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"

namespace dlaunch {

class ThreadPool {
 public:
  // The pool of this process. A forked child gets one of its own.
  static std::shared_ptr<ThreadPool> of_process();
  // Call it in a forked child, where the parent's threads do not exist and may have held its locks.
  static void on_forked();

  // All tasks must have ended. Do not call it on a thread of the pool.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs the task at once, on a thread that does nothing else meanwhile. The task must not throw.
  // Error: the system has no thread to give.
  Result<void> run(std::function<void()> task);
  static constexpr std::size_t kKept = 2;  // for the next collective and the next message
  std::size_t threads() const;             // busy and free

 private:
  ThreadPool() = default;
  void serve();
  bool retire();
  void join_retired();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> waiting_;  // a free thread is on its way to each
  std::vector<std::thread> threads_;
  std::vector<std::thread> retired_;  // have ended, or are about to
  std::size_t free_ = 0;              // threads that wait for a task, less those in waiting_
  bool over_ = false;
};

}  // namespace dlaunch
