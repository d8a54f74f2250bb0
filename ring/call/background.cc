#include "ring/call/background.h"

#include <utility>

#include "base/quiet_thread.h"

namespace dlaunch {

void Background::stop(const Error& why) {
  if (!queue_) return;
  queue_->close();
  if (thread_.joinable()) thread_.join();
  // It may have seen the end before it saw these; somebody may still wait for them.
  while (const auto left = queue_->take()) left->finish(why);
}

Result<void> Background::push(std::shared_ptr<Operation> operation) {
  if (!queue_) {
    auto queue = OperationQueue::make();
    if (!queue) return queue.error();
    queue_ = std::move(*queue);
    auto thread = start_quiet_thread([this] { main(); });
    if (!thread) {
      queue_.reset();
      return thread.error();
    }
    thread_ = std::move(*thread);
  }
  queue_->push(std::move(operation));
  return {};
}

void Background::main() {
  while (true) {
    queue_->wait();
    if (queue_->closed()) return;
    serve_(*queue_);
    queue_->settle();
  }
}

}  // namespace dlaunch
