#include "ring/call/background.h"

#include <utility>

namespace dlaunch {

void Background::stop(const Error& why) {
  std::unique_lock lock(mutex_);
  if (queue_) queue_->close();
  stopped_by_ = why;
  gave_back_.wait(lock, [this] { return queue_ == nullptr; });
}

Result<void> Background::push(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  if (!queue_) {
    auto queue = OperationQueue::make();
    if (!queue) return queue.error();
    if (!pool_) pool_ = ThreadPool::of_process();
    // The thread may ask for the queue as soon as this lock is free.
    queue_ = std::move(*queue);
    if (auto started = pool_->run([this] { main(); }); !started) {
      queue_.reset();
      return started;
    }
    has_queue_.store(true, std::memory_order_release);
  }
  queue_->push(std::move(operation));
  return {};
}

bool Background::busy() const {
  if (rests()) return false;
  const std::lock_guard lock(mutex_);
  return queue_ != nullptr && queue_->busy();
}

// Gives the thread back unless another operation has come.
bool Background::give_back() {
  const std::lock_guard lock(mutex_);
  if (queue_->closed()) {
    // The thread may have seen the end before it saw these operations; callers may still wait for
    // them.
    while (const auto left = queue_->take()) left->finish(stopped_by_);
  } else if (queue_->busy()) {
    return false;
  }
  queue_.reset();
  has_queue_.store(false, std::memory_order_release);
  gave_back_.notify_all();  // under the lock: a woken thread may destroy this object
  return true;
}

void Background::main() {
  OperationQueue* queue = nullptr;
  {
    const std::lock_guard lock(mutex_);
    queue = queue_.get();
  }
  while (true) {
    const bool came = queue->wait(rest_);
    if ((!came || queue->closed()) && give_back()) return;
    serve_(*queue);
    queue->settle();
  }
}

}  // namespace dlaunch
