#include "ring/call/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>
#include <utility>

#include "base/quiet_thread.h"

namespace dlaunch {
namespace {

constexpr std::chrono::milliseconds kFreeForLong(500);

struct PoolOfProcess {
  std::mutex mutex;
  std::weak_ptr<ThreadPool> pool;
};

// Needed until the process ends; a forked child makes a new one without reading the old contents.
alignas(PoolOfProcess) std::byte pool_room[sizeof(PoolOfProcess)];

PoolOfProcess& pool_of_process() {
  static bool made = (new (pool_room) PoolOfProcess, true);
  (void)made;
  return *std::launder(reinterpret_cast<PoolOfProcess*>(pool_room));
}

}  // namespace

std::shared_ptr<ThreadPool> ThreadPool::of_process() {
  auto& common = pool_of_process();
  const std::lock_guard lock(common.mutex);
  auto pool = common.pool.lock();
  if (!pool) {
    pool.reset(new ThreadPool);
    common.pool = pool;
  }
  return pool;
}

void ThreadPool::on_forked() {
  (void)pool_of_process();
  new (pool_room) PoolOfProcess;
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
  join_retired();
}

// Call it under the lock, which the retired threads no longer need.
void ThreadPool::join_retired() {
  for (auto& thread : retired_) thread.join();
  retired_.clear();
}

Result<void> ThreadPool::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  join_retired();
  if (free_ == 0) {
    auto thread = start_quiet_thread([this] { serve(); });
    if (!thread) return thread.error();
    threads_.push_back(std::move(*thread));
    ++free_;
  }
  --free_;
  waiting_.push_back(std::move(task));
  changed_.notify_one();
  return {};
}

std::size_t ThreadPool::threads() const {
  const std::lock_guard lock(mutex_);
  return threads_.size();
}

// Retires the calling thread, which is free. Call it under the lock.
bool ThreadPool::retire() {
  if (free_ <= kKept) return false;
  const auto own = std::find_if(threads_.begin(), threads_.end(), [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  });
  if (own == threads_.end()) return false;  // run(), which makes it, has not added it yet
  --free_;
  retired_.push_back(std::move(*own));
  threads_.erase(own);
  return true;
}

void ThreadPool::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto comes = [this] { return over_ || !waiting_.empty(); };
    if (free_ <= kKept) {
      changed_.wait(lock, comes);
    } else if (!changed_.wait_for(lock, kFreeForLong, comes)) {
      if (retire()) return;
      continue;
    }
    if (waiting_.empty()) return;
    const auto task = std::move(waiting_.back());
    waiting_.pop_back();
    lock.unlock();
    task();
    lock.lock();
    ++free_;
  }
}

}  // namespace dlaunch
