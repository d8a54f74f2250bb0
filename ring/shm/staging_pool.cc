#include "ring/shm/staging_pool.h"

#include <algorithm>

#include "ring/call/spread.h"
#include "ring/shm/shm_memory.h"

namespace dlaunch {
namespace {

// Others mostly soon read what one communicator's call has left: waiting for that costs less than
// more memory. Wait longer the more pieces exist: a rank may be ahead, by any number of
// communicators, of others that are busy.
constexpr Duration kReadSoon = std::chrono::milliseconds(2);
constexpr std::size_t kMostDoublings = 9;
constexpr int kOffers = 100;  // offers of the core, before it sleeps
constexpr Duration kPause = std::chrono::microseconds(100);

}  // namespace

StagingPool::StagingPool(char* own, std::vector<const char*> data, std::size_t bytes,
                         std::vector<std::shared_ptr<void>> keep)
    : ranks_(data.size()), bytes_(bytes), both_write_(false), keep_(std::move(keep)) {
  own_.push_back(std::make_unique<Own>());
  own_.back()->memory = own;
  own_.back()->passed.resize(ranks_, true);
  for (std::size_t r = 0; r < ranks_; ++r) {
    // Mapped read-only, and used so.
    theirs_[{static_cast<int>(r), 0}].memory = const_cast<char*>(data[r]);
  }
}

StagingPool::StagingPool(int ranks, std::size_t bytes)
    : ranks_(static_cast<std::size_t>(ranks)), bytes_(bytes), both_write_(true) {}

void StagingPool::pass_by(Pass pass) {
  const std::lock_guard lock(mutex_);
  pass_ = std::move(pass);
}

// Call it under the lock. soon: an unused piece only has to be read by others yet.
StagingPool::Own* StagingPool::free_for(const StagingReaders* user, bool& soon) const {
  soon = false;
  for (const auto& own : own_) {
    if (own->busy) continue;
    if (!own->user) return own.get();
    if (own->count == kNeverRead) continue;
    if (own->user.get() == user || own->user->have_read(own->count)) return own.get();
    soon = true;
  }
  return nullptr;
}

Duration StagingPool::patience() const {
  return kReadSoon * (1 << std::min(own_.size(), kMostDoublings));
}

Result<StagingPool::Borrowed> StagingPool::borrow(const std::shared_ptr<const StagingReaders>& user,
                                                  const std::vector<int>& ranks, TimePoint deadline,
                                                  const AbortFlag& abort) {
  std::unique_lock lock(mutex_);
  bool soon = false;
  Own* own = free_for(user.get(), soon);
  const TimePoint began = own == nullptr ? steady_now() : TimePoint{};
  for (int looks = 0; own == nullptr; ++looks) {
    if (abort.raised()) return abort.error();
    const TimePoint now = steady_now();
    if (soon && now - began < patience() && now < deadline) {
      if (looks < kOffers) {
        lock.unlock();
        offer_core();
        lock.lock();
      } else {
        changed_.wait_for(lock, kPause);  // ranks do not announce that they have read
      }
    } else if (auto made = make(); !made) {
      return made.error();
    }
    own = free_for(user.get(), soon);
  }
  own->busy = true;
  if (own->user != user) own->user = user;
  pass(*own, ranks);
  return Borrowed{.number = own->number, .memory = own->memory};
}

void StagingPool::pass(Own& own, const std::vector<int>& ranks) {
  for (const int r : ranks) {
    if (own.passed[static_cast<std::size_t>(r)]) continue;
    own.passed[static_cast<std::size_t>(r)] = true;
    pass_(r, own.number, own.descriptor.get());
  }
}

Result<void> StagingPool::make() {
  if (!pass_) return Error{.code = Errc::io, .what = "shared memory: its one segment is in use"};
  auto segment = make_shm_segment("dlring-staging", bytes_,
                                  both_write_ ? ShmWriters::both : ShmWriters::owner);
  if (!segment) return segment.error();
  auto own = std::make_unique<Own>();
  own->number = own_.empty() ? 1 : own_.back()->number + 1;
  own->memory = static_cast<char*>(segment->writable.get());
  own->keep = std::move(segment->writable);
  own->descriptor = std::move(segment->fd);
  own->passed.resize(ranks_, false);
  own_.push_back(std::move(own));
  return {};
}

void StagingPool::give_back(std::uint64_t number, std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  for (const auto& own : own_) {
    if (own->number != number) continue;
    own->busy = false;
    own->count = count;
  }
}

char* StagingPool::memory_of(int r, std::uint64_t number, TimePoint deadline,
                             const AbortFlag& abort) {
  constexpr auto kSlice = std::chrono::milliseconds(5);  // the flag does not wake this wait
  std::unique_lock lock(mutex_);
  while (true) {
    const auto found = theirs_.find({r, number});
    if (found != theirs_.end()) return found->second.memory;
    if (abort.raised() || steady_now() >= deadline) return nullptr;
    changed_.wait_for(lock, kSlice);
  }
}

void StagingPool::take(int r, std::uint64_t number, const UniqueFd& descriptor) {
  Theirs theirs;
  if (!descriptor) {
    theirs.why_not = "no room for more descriptors: is 'ulimit -n' too low?";
  } else if (auto mapped = map_shm_segment(descriptor, bytes_,
                                           both_write_ ? ShmWriters::both : ShmWriters::owner);
             !mapped) {
    theirs.why_not = mapped.error().what;
  } else {
    theirs.memory = static_cast<char*>(mapped->get());
    theirs.keep = std::move(*mapped);
  }
  {
    const std::lock_guard lock(mutex_);
    theirs_.try_emplace({r, number}, std::move(theirs));
  }
  changed_.notify_all();
}

std::string StagingPool::why_not(int r, std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = theirs_.find({r, number});
  return found == theirs_.end() ? "" : found->second.why_not;
}

std::size_t StagingPool::made() const {
  const std::lock_guard lock(mutex_);
  return own_.size();
}

}  // namespace dlaunch
