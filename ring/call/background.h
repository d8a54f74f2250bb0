// Background: carries out the operations pushed to it, one after the other, on a thread that it
// borrows from the process's pool for the first one. After some idle time it gives the thread back
// and closes its descriptors. While no operation is under way it touches nothing that serve() uses,
// so the caller's own thread may use it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/result.h"
#include "ring/call/operation.h"
#include "ring/call/thread_pool.h"

namespace dlaunch {

class Background {
 public:
  // serve(queue) takes operations, finishes each, and returns when none is left.
  using Serve = std::function<void(OperationQueue&)>;
  explicit Background(Serve serve, Duration rest = std::chrono::milliseconds(100))
      : serve_(std::move(serve)), rest_(rest) {}
  ~Background() { stop({.code = Errc::aborted, .what = "the communicator has ended"}); }
  // Running operations must come to an end by themselves: raise the abort flag first. Operations
  // that have not begun end with `why`.
  void stop(const Error& why);
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // One thread at a time.
  Result<void> push(std::shared_ptr<Operation> operation);
  bool busy() const;
  // Holds neither a thread nor a descriptor.
  bool rests() const { return !has_queue_.load(std::memory_order_acquire); }

 private:
  void main();
  bool give_back();

  const Serve serve_;
  const Duration rest_;  // how long the thread waits for more
  mutable std::mutex mutex_;
  std::condition_variable gave_back_;
  std::atomic<bool> has_queue_{false};
  std::unique_ptr<OperationQueue> queue_;  // while a thread serves it
  Error stopped_by_;                       // for operations that had not begun at stop()
  std::shared_ptr<ThreadPool> pool_;       // from the first operation on
};

}  // namespace dlaunch
