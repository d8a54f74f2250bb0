#include "ring/device/pinned_pool.h"

namespace dlaunch {

namespace {

constexpr std::size_t kUnit = 64 << 10;

}  // namespace

Result<std::shared_ptr<PinnedPool>> PinnedPool::make(int device) {
  auto context = DeviceContext::retain(device);
  if (!context) return context.error();
  return std::shared_ptr<PinnedPool>(new PinnedPool(std::move(*context)));
}

PinnedPool::~PinnedPool() {
  const CurrentContext current(context_->get());
  if (left_behind_) {
    for (auto& [bytes, memory] : free_) (void)memory.release();
  }
  free_.clear();
}

Result<std::shared_ptr<void>> PinnedPool::take(std::size_t bytes) {
  std::size_t room = (bytes + kUnit - 1) / kUnit * kUnit;
  PinnedMemory memory = reuse(room);
  if (!memory) {
    const CurrentContext current(context_->get());
    if (auto ok = current.made(); !ok) return ok.error();
    auto made = make_pinned_memory(room);
    if (!made) return made.error();
    memory = std::move(*made);
  }
  return std::shared_ptr<void>(memory.release(), [pool = shared_from_this(), room](void* old) {
    pool->give_back(PinnedMemory(static_cast<char*>(old)), room);
  });
}

// Up to twice as much; sets `bytes` to its size. Null: there is none.
PinnedMemory PinnedPool::reuse(std::size_t& bytes) {
  const std::lock_guard lock(mutex_);
  const auto fit = free_.lower_bound(bytes);
  if (left_behind_ || fit == free_.end() || fit->first > 2 * bytes) return nullptr;
  bytes = fit->first;
  PinnedMemory memory = std::move(fit->second);
  free_.erase(fit);
  return memory;
}

void PinnedPool::give_back(PinnedMemory memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_.emplace(bytes, std::move(memory));
}

void PinnedPool::leave_behind() {
  const std::lock_guard lock(mutex_);
  left_behind_ = true;
}

}  // namespace dlaunch
