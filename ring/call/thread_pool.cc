#include "ring/call/thread_pool.h"

#include <cstddef>
#include <new>
#include <utility>

#include "base/quiet_thread.h"

namespace dlaunch {
namespace {

struct PoolOfProcess {
  std::mutex mutex;
  std::weak_ptr<ThreadPool> pool;
};

// Needed until the process ends; and a child makes it new without looking at what it was.
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
}

Result<void> ThreadPool::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
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

void ThreadPool::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return over_ || !waiting_.empty(); });
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
