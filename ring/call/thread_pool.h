// ThreadPool: the threads that carry out what communicators of this process do in the background.
// A communicator borrows one while it has something to do and gives it back afterwards, so hundreds
// of communicators at rest hold no thread. The pool makes a thread when none is free, and ends
// those that have long been free, but for two.
//
// Thread-safe. Whoever runs tasks keeps the pool alive; with its last user its threads end.
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
  // In a forked child, where the parent's threads do not exist and may have held its locks.
  static void on_forked();

  // All tasks must have ended. Not on a thread of the pool.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs the task at once, on a thread that does nothing else meanwhile. It must not throw. The
  // error is that of a system that has no thread to give.
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
  std::vector<std::function<void()>> waiting_;  // each has a free thread, which is on its way to it
  std::vector<std::thread> threads_;
  std::vector<std::thread> retired_;  // have ended, or are about to
  std::size_t free_ = 0;              // threads that wait for a task, less those in waiting_
  bool over_ = false;
};

}  // namespace dlaunch
