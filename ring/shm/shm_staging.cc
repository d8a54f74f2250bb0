#include "ring/shm/shm_staging.h"

#include <fmt/format.h>

namespace dlaunch {
namespace {

// Keeps the counters mapped while the pool may ask.
class ReadersOf : public StagingReaders {
 public:
  ReadersOf(const ShmMemory& memory, ShmCounter ShmRank::*counter)
      : ranks_(memory.ranks), n_(memory.shape.ranks), counter_(counter), keep_(memory.keep) {}
  bool have_read(std::uint64_t count) const override {
    for (int r = 0; r < n_; ++r) {
      if ((ranks_[r].*counter_).blocks.load(std::memory_order_acquire) < count) return false;
    }
    return true;
  }

 private:
  const ShmRank* const ranks_;
  const int n_;
  ShmCounter ShmRank::*const counter_;
  const std::vector<std::shared_ptr<void>> keep_;
};

}  // namespace

std::shared_ptr<const StagingReaders> ShmPlane::readers_of(const ShmMemory& memory,
                                                           ShmCounter ShmRank::*counter) {
  return std::make_shared<ReadersOf>(memory, counter);
}

// A call planned as an exchange may still go in blocks, from memory that is read in place.
bool ShmPlane::stages_in_pool(bool reduces) const {
  if (!host_memory_ || (!reduces && layout_.exchange_bytes > 0)) return false;
  return plan_.algorithm == ShmPlan::Algorithm::blocks || (regions_ && !regions_->empty());
}

// Whether this call, in blocks, is one of two ranks that need memory that both write, and lack
// memory of their own for it.
bool ShmPlane::borrows_pair(bool reduces) const {
  if (!host_memory_ || memory_.own != nullptr || layout_.exchange_bytes == 0) return false;
  return !reduces || plan_.algorithm == ShmPlan::Algorithm::exchange;
}

ShmPlane::Loans::Loans(ShmPlane& plane, bool reduces)
    : plane_(plane), reduces_(reduces), uses_pair_(plane.borrows_pair(reduces)) {}

ShmPlane::Loans::~Loans() {
  if (has_staging_) {
    plane_.host_memory_->staging().give_back(plane_.staging_number_,
                                             well_ ? plane_.base_ : StagingPool::kNeverRead);
  }
  if (has_pair_) {
    pair_pool().give_back(plane_.pair_number_, well_ ? plane_.parted_ : StagingPool::kNeverRead);
  }
}

StagingPool& ShmPlane::Loans::pair_pool() const {
  return plane_.host_memory_->pair(plane_.host_peers_.front());
}

Result<void> ShmPlane::Loans::borrow() {
  plane_.stages_ = plane_.stages_in_pool(reduces_);
  plane_.staging_number_ = plane_.pair_number_ = 0;
  const auto from = [&](StagingPool& pool, const auto& readers) {
    return pool.borrow(readers, plane_.host_peers_, plane_.call_.deadline, plane_.abort_);
  };
  if (plane_.stages_ && (reduces_ || plane_.own_input() > 0)) {
    auto borrowed = from(plane_.host_memory_->staging(), plane_.readers_);
    if (!borrowed) return borrowed.error();
    has_staging_ = true;
    plane_.staging_number_ = borrowed->number;
    plane_.own_staging_ = borrowed->memory;
    plane_.staging_[static_cast<std::size_t>(plane_.rank_)] = borrowed->memory;
  }
  // The first of the two ranks borrows for both.
  if (uses_pair_ && plane_.rank_ == 0) {
    auto borrowed = from(pair_pool(), plane_.pair_readers_);
    if (!borrowed) return borrowed.error();
    has_pair_ = true;
    plane_.pair_number_ = borrowed->number;
    plane_.pair_ = borrowed->memory;
  }
  return {};
}

void ShmPlane::Loans::went_well() {
  well_ = true;
  if (!uses_pair_) return;
  ++plane_.parted_;
  plane_.own().parted.blocks.store(plane_.parted_, std::memory_order_release);
}

// Call it after waiting for rank r's entry, which says where it stages.
Result<void> ShmPlane::find_staging(int r) {
  const auto i = static_cast<std::size_t>(r);
  const std::uint64_t number = loan_of(r).staging;
  StagingPool& pool = host_memory_->staging();
  staging_[i] = pool.memory_of(host_ranks_[i], number, call_.deadline, abort_);
  return staging_[i] != nullptr ? Result<void>() : not_had(r, pool, number);
}

// The second of two ranks begins in the memory that the first one has borrowed for both.
Result<void> ShmPlane::await_pair() {
  if (rank_ == 0) return {};
  if (auto there = await_entry(0); !there) return there;
  pair_number_ = loan_of(0).pair;
  StagingPool& pool = host_memory_->pair(host_ranks_[0]);
  pair_ = pool.memory_of(host_ranks_[0], pair_number_, call_.deadline, abort_);
  return pair_ != nullptr ? Result<void>() : not_had(0, pool, pair_number_);
}

Error ShmPlane::not_had(int r, StagingPool& pool, std::uint64_t number) const {
  const std::string why = pool.why_not(host_ranks_[static_cast<std::size_t>(r)], number);
  if (why.empty()) return failure(r);
  return Error{.code = Errc::io,
               .what = fmt::format("{}: the memory of rank {} cannot be read: {}",
                                   collective_name(call_.collective), name_of(r), why)};
}

}  // namespace dlaunch
