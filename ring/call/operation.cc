#include "ring/call/operation.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstddef>
#include <new>
#include <utility>

namespace dlaunch {

Completions::Common& Completions::common() {
  // Static memory: threads may wait on it when the process ends, and it works without free memory.
  alignas(Common) static std::byte room[sizeof(Common)];
  static auto* const forever = new (room) Common;
  return *forever;
}

void KeptCall::keep(const Call& given, int ranks) {
  call = given;
  if (given.counts != nullptr) {
    counts.assign(given.counts, given.counts + ranks);
    call.counts = counts.data();
  }
  if (given.splits != nullptr) {
    splits = *given.splits;
    call.splits = &splits;
  }
  if (given.shards != nullptr) {
    shards = *given.shards;
    call.shards = &shards;
  }
  if (given.compression != nullptr) {
    compression = *given.compression;
    call.compression = &compression;
  }
  if (given.list != nullptr) {
    list = *given.list;
    call.list = &list;
  }
}

Result<std::unique_ptr<OperationQueue>> OperationQueue::make() {
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return errno_error("eventfd", errno);
  return std::unique_ptr<OperationQueue>(new OperationQueue(std::move(event)));
}

void OperationQueue::push(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(operation));
  busy_ = true;
  if (waiting_.size() == 1) eventfd_write(event_.get(), 1);
}

std::shared_ptr<Operation> OperationQueue::take() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return nullptr;
  auto next = std::move(waiting_.front());
  waiting_.pop_front();
  eventfd_t count;
  if (waiting_.empty() && !closed_) eventfd_read(event_.get(), &count);
  return next;
}

bool OperationQueue::wait(Duration most) {
  const TimePoint until = steady_now() + most;
  pollfd ready{.fd = event_.get(), .events = POLLIN, .revents = 0};
  while (true) {
    const int found = poll(&ready, 1, poll_timeout_ms(steady_now(), until));
    if (found > 0) return true;
    if (found == 0) return false;
  }
}

void OperationQueue::settle() {
  const std::lock_guard lock(mutex_);
  busy_ = !waiting_.empty();
}

bool OperationQueue::busy() const {
  const std::lock_guard lock(mutex_);
  return busy_;
}

void OperationQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  eventfd_write(event_.get(), 1);
}

bool OperationQueue::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace dlaunch
