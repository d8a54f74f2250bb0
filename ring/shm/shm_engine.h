// ShmPlane's insides. shm_plane.cc: arrival at a call, and messages in one shot; shm_blocks.cc:
// large ones, in blocks; shm_exchange.cc and shm_transfer.cc: those of two ranks; shm_lend.cc:
// large ones that are read in place; shm_staging.cc: the staging places of the others.
//
// Small messages go in one shot: each rank puts its input where all can read it and, once all have
// arrived, reduces all inputs itself. If ranks outnumber cores the last rank to arrive reduces for
// all and wakes the others, so that each of them is switched in once.
//
// Large ones are cut into blocks of one chunk per rank and go through a pipeline of three stages,
// all in memory that fits the second-level caches: copy the inputs of block i+1 into the staging
// slots, reduce the own chunk of block i over all ranks, copy the others' results of block i-1 out.
// The own chunk is never staged. Every element is combined in rank order by one call of reduce(),
// so that results do not depend on how a vector is cut.
//
// The all_reduce, or reduce, of two ranks with a core each goes through one slot instead of two: a
// rank stages the input that the other one reduces, and the result replaces it in place. The cost
// there is how often a cache line changes hands; with separate result slots each line would change
// hands once more per direction, when its slot is written again. Memory that two ranks both write
// is in the control segment. In an all_reduce the three stages take turns line by line (see
// exchange_step).
//
// Collectives that only move data go in blocks, too: the giver copies data into the staging slots,
// the takers out of them. (One copy by process_vm_readv instead of these two takes one and a half
// to three times as long for any size, because the kernel looks up each page.) Two ranks with a
// core each take turns in slots that both write: where a rank has just taken a block out it puts
// one of its own in, line by line. A rank with no more data to give writes back what it has read.
// Otherwise both caches would keep the line, and if the cores share no cache the next store to it
// would take three times as long as moving the whole line (AMD Zen 3: 1 MiB of an all_to_all in 85
// instead of 225 us). In one shot they write back, too (AMD Zen 5, cores that share no cache: a
// broadcast of 16 KiB in 2.1 instead of 3.9 us).
// Buffers in memory of dl_alloc() are read in place: the arrival says where they are. If all ranks
// of a reduction give such buffers, nothing is staged; each rank reduces its chunk from the others'
// inputs, and they copy it from its output. A lender waits until the others have read. An
// all_reduce of two ranks in place is still staged: otherwise each line would change hands twice as
// often as in an exchange.
//
// A store to a line that another core's cache still holds takes two to seven times as long as one
// to a line that it has dropped. So if each rank has a core, chunks smaller than their slot take
// turns in it: by the next write to a line other data have driven it out of that cache. Ranks that
// share cores find the line in their own cache, and always use the same place.
//
// Reuse of slots: a slot is reused kSlots blocks later, when every rank's `done` says that it has
// finished reading; an exchange slot when its owner has taken the result out; a transfer slot by
// the rank that has taken its block out, or kTransferSlots blocks after that was `passed`; an entry
// or small slot kEntries calls later, when every rank has entered the call after the one it served.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/clock.h"
#include "ring/call/abort_flag.h"
#include "ring/call/plane.h"
#include "ring/shm/host_memory.h"
#include "ring/shm/shm_memory.h"
#include "ring/shm/shm_plane.h"
#include "ring/shm/shm_regions.h"
#include "ring/shm/shm_wait.h"

namespace dlaunch {

class ShmPlane : public Plane {
 public:
  ShmPlane(int rank, ShmMemory memory, AbortFlag& abort, const ShmOptions& options)
      : rank_(rank),
        n_(memory.shape.ranks),
        memory_(std::move(memory)),
        layout_(layout_for(memory_.shape, options)),
        abort_(abort),
        uses_barrier_(!layout_.own_cores),
        share_((n_ - 1) / std::max(options.usable_cores, 1) + 1),
        waiter_(abort, rank_, own().bell, !uses_barrier_, [this] { return cores_of_others(); }),
        names_(options.names),
        regions_(options.regions),
        rules_(options.plan_rules),
        host_memory_(options.host_memory),
        host_ranks_(options.host_ranks),
        readers_(readers_of(memory_, &ShmRank::done)),
        pair_readers_(readers_of(memory_, &ShmRank::parted)),
        staging_(memory_.data),
        own_staging_(memory_.own),
        lent_(static_cast<std::size_t>(n_)),
        operands_(static_cast<std::size_t>(n_)) {
    staging_.resize(static_cast<std::size_t>(n_));  // a group has no data segments
    if (memory_.own != nullptr) {
      pair_ = reinterpret_cast<char*>(memory_.header) + memory_.shape.pair();
    }
    for (std::size_t r = 0; r < host_ranks_.size(); ++r) {
      if (r != static_cast<std::size_t>(rank_)) host_peers_.push_back(host_ranks_[r]);
    }
    // This rank may sleep on any bell: waking all is cheap and happens only once.
    abort.on_raise([keep = memory_.keep, ranks = memory_.ranks, header = memory_.header, n = n_] {
      for (int r = 0; r < n; ++r) ring_bell_always(ranks[r].bell);
      ring_bell_always(header->bell);
    });
  }

  const char* name() const override { return "shm"; }
  Result<void> run(const Call& call) override;
  std::string explain(const Call& call) const override;

 private:
  // If both share a core, larger blocks switch less often than an exchange would.
  static ShmShape layout_for(ShmShape shape, const ShmOptions& options) {
    shape.own_cores = options.usable_cores >= shape.ranks;
    if (!shape.own_cores) shape.exchange_bytes = 0;
    return shape;
  }

  ShmPlan plan(const Shape& shape) const {
    return plan_shm(shape, n_, layout_, shm_wish_by(rules_, shape, n_));
  }
  int core_of(int r) const { return memory_.ranks[r].bell.core.load(std::memory_order_relaxed); }
  std::vector<int> cores_of_others() const;  // where they were last seen
  std::size_t own_input() const;             // bytes
  bool streams() const;
  Result<void> await_own_entry();
  void arrive(std::size_t inline_count);
  Result<void> await_entry(int r);
  Result<void> await_all_entries();
  bool entered(int r, std::uint64_t seq) const;
  // Waits for a value of this call; rank r must have begun the call.
  Result<void> await(int r, ShmCounter ShmRank::*counter, std::uint64_t value);
  // Waits for a value of this call or an earlier one.
  Result<void> await_counter(int r, ShmCounter ShmRank::*counter, std::uint64_t value);
  // The error after a failed wait for the progress of rank `awaited`; -1: of any.
  Error failure(int awaited = -1) const;
  int name_of(int r) const { return names_.empty() ? r : names_[static_cast<std::size_t>(r)]; }

  // shm_plane.cc: messages in one shot.
  Result<void> in_blocks(bool reduces);
  Result<void> one_shot();
  Result<void> barrier(bool reduce_for_all);
  void find_plan();
  bool keeps_core();
  Result<void> await_givers();
  const char* small_input(int r) const;
  void finish_one_shot();
  void take_small(int r, const Delivery& delivery);

  // shm_blocks.cc: large ones.
  Result<void> reduce_in_blocks();
  Result<void> deliver_in_blocks();
  Result<void> give_block(std::size_t block);
  Result<void> take_block(std::size_t block);
  // shm_staging.cc
  static std::shared_ptr<const StagingReaders> readers_of(const ShmMemory& memory,
                                                          ShmCounter ShmRank::*counter);
  // Borrowed memory of this call, until the object ends.
  class Loans;
  bool stages_in_pool(bool reduces) const;
  bool borrows_pair(bool reduces) const;
  Result<void> find_staging(int r);
  Result<void> await_pair();
  Error not_had(int r, StagingPool& pool, std::uint64_t number) const;
  // shm_lend.cc
  // Where a rank's buffers are; it says so when it arrives at a large call.
  struct Loan {
    std::uint64_t in_offset = 0, out_offset = 0;
    std::uint32_t in_region = 0, out_region = 0;  // 0: not memory of dl_alloc()
    // The numbers of the pieces in the pools: for staging, and for memory that two ranks both
    // write.
    std::uint32_t staging = 0, pair = 0;
  };
  static_assert(sizeof(Loan) <= kInlineBytes);
  void lend();
  Loan loan_of(int r) const;
  Result<bool> all_in_regions();
  Result<void> take_lent(int r, const Loan& loan, const Delivery& delivery);
  Result<void> await_takers();
  Error not_there(int r) const;
  // The part of a delivery that a block holds, as elements from its start.
  Part piece(const Delivery& delivery, std::size_t block) const;

  // shm_exchange.cc
  Result<void> exchange_in_blocks();
  // A half of a block, and where it changes hands; empty beyond the last block.
  struct Turn {
    Part half;
    char* slot = nullptr;
  };
  Turn turn_of(std::size_t block, int reducer) const;
  Result<void> exchange_step(std::size_t step);
  std::size_t exchange_together(const Turn& back, const Turn& ahead, const Turn& own);
  void take_back(const Turn& turn, std::size_t from);
  void offer(const Turn& turn, std::size_t from);
  void combine(const Turn& turn, std::size_t from);
  void combine_piece(const char* in, char* shared, char* out, std::size_t count);
  std::array<const void*, 2> in_rank_order(const void* own, const void* theirs) const;
  char* exchange_slot(int owner, std::uint64_t block) const {
    return pair_ + layout_.exchange(owner, block);
  }

  // shm_transfer.cc
  Result<void> transfer_in_blocks();
  Result<void> transfer_block(std::size_t step, const Delivery& given, const Delivery& taken);
  void pass(char* slot, std::size_t first_in, std::size_t given, std::size_t first_out,
            std::size_t taken);
  void take_over(std::size_t first, char* slot, std::size_t count);
  void copy_own(std::size_t block);

  Part slice(std::size_t block, int r) const;  // a rank's share of a block that is reduced
  bool takes_results() const;
  Result<void> stage(std::size_t block);
  Result<void> reduce_chunk(std::size_t block);
  Result<void> copy_results(std::size_t block);
  Result<void> await_free_slot(std::uint64_t block);
  void publish(ShmCounter ShmRank::*counter, std::uint64_t blocks);
  // Copies into the user's buffer.
  void copy(void* to, const void* from, std::size_t bytes) const;

  // Calls visit(in, out, done, count) for each piece of the user's buffers that lies in one tensor,
  // from element `first` on; `done`: elements before it.
  template <class Visit>
  void each_piece(std::size_t first, std::size_t count, Visit visit) const;
  void read_input(void* to, std::size_t first, std::size_t count) const;
  void write_output(std::size_t first, const void* from, std::size_t count) const;
  // The operand of rank r for a block's slice of this rank.
  const char* operand_of(int r, std::uint64_t block, const Part& slice) const {
    if (direct_) return lent_[static_cast<std::size_t>(r)].in + slice.first * element_;
    return staged_by(r, block, rank_);
  }
  // The slice's result from rank r.
  const char* result_of(int r, std::uint64_t block, const Part& slice) const {
    const auto i = static_cast<std::size_t>(r);
    if (direct_ && call_.collective == Collective::all_reduce) {
      return lent_[i].out + slice.first * element_;
    }
    return staging_[i] + layout_.result(block) + turn(block);
  }
  const char* staged_by(int r, std::uint64_t block, int chunk) const {
    return staging_[static_cast<std::size_t>(r)] + staging(block, chunk);
  }
  // An offset in a data segment.
  std::size_t staging(std::uint64_t block, int chunk) const {
    return layout_.staging(block, chunk) + turn(block);
  }
  std::size_t turn(std::uint64_t block) const;
  ShmRank& own() const { return memory_.ranks[rank_]; }

  const int rank_;
  const int n_;
  const ShmMemory memory_;
  const ShmShape layout_;
  AbortFlag& abort_;
  const bool uses_barrier_;  // more ranks than cores
  const int share_;          // of a core
  Waiter waiter_;
  const std::vector<int> names_;
  const std::shared_ptr<const ShmRegions> regions_;
  const PlanRules rules_;
  const std::shared_ptr<HostMemory> host_memory_;  // null: each rank stages in its data segment
  const std::vector<int> host_ranks_;              // the ranks' numbers there
  std::vector<int> host_peers_;                    // likewise, but for the own one
  const std::shared_ptr<const StagingReaders> readers_, pair_readers_;
  std::vector<const char*> staging_;  // for this call, by rank
  char* own_staging_ = nullptr;
  std::uint64_t staging_number_ = 0;
  bool stages_ = false;            // this call's ranks say where they stage
  char* pair_ = nullptr;           // memory that two ranks both write, in this call
  std::uint64_t pair_number_ = 0;  // likewise, if it is borrowed
  std::uint64_t parted_ = 0;       // calls that have borrowed it

  // A rank's buffers in regions, as mapped here, in this call; set if all are in regions.
  struct Lent {
    const char* in = nullptr;
    const char* out = nullptr;
  };
  std::vector<Lent> lent_;
  Call call_;  // the running call
  std::size_t element_ = 1;
  bool streaming_ = false;
  CallSignature signature_;
  // What a call without parts of its own sizes has in common with the next one like it.
  struct PlanKey {
    Collective collective = Collective::barrier;
    dl_dtype dtype = DL_DTYPE_ANY_INT;  // of no call
    dl_op op = DL_SUM;
    int root = -1;
    std::size_t count = 0;
    bool operator==(const PlanKey&) const = default;
    std::size_t slot() const {
      const std::size_t mixed = count * 0x9e3779b97f4a7c15;  // counts are often powers of two
      return (mixed >> 32 ^ static_cast<std::size_t>(collective) * 5) % kPlans;
    }
  };
  struct Planned {
    PlanKey key;
    Shape shape;
    ShmPlan plan;
  };
  static constexpr std::size_t kPlans = 32;
  std::array<Planned, kPlans + 1> planned_;  // the last one: for calls whose parts have own sizes
  const Shape* shape_ = nullptr;             // of this call
  ShmPlan plan_;                             // likewise
  std::vector<bool> verified_;         // ranks whose entry of this call was compared with ours
  std::vector<const void*> operands_;  // scratch, in rank order
  std::uint64_t all_entered_ = 0;      // the last call that every rank was seen to enter
  std::uint64_t base_ = 0;             // blocks of all calls before this one
  std::uint64_t passed_ = 0;           // blocks of all transfers before this one
  std::uint64_t barriers_ = 0;
  bool lends_ = false;   // in this call
  bool direct_ = false;  // all reduce from regions, in this call
};

template <class Visit>
void ShmPlane::each_piece(std::size_t first, std::size_t count, Visit visit) const {
  if (count == 0) return;
  const auto at = [&](const void* base, std::size_t element) {
    return base == nullptr ? nullptr : static_cast<const char*>(base) + element * element_;
  };
  const auto writable = [](const char* p) { return const_cast<char*>(p); };
  if (call_.list == nullptr) {
    return visit(at(call_.in, first), writable(at(call_.out, first)), std::size_t{0}, count);
  }
  const auto& list = *call_.list;
  auto tensor = static_cast<std::size_t>(
      std::upper_bound(list.ends.begin(), list.ends.end(), first) - list.ends.begin());
  for (std::size_t done = 0; done < count; ++tensor) {
    const std::size_t begin = tensor == 0 ? 0 : list.ends[tensor - 1], from = first + done - begin;
    const std::size_t here = std::min(list.ends[tensor] - begin - from, count - done);
    visit(at(list.in[tensor], from), writable(at(list.out[tensor], from)), done, here);
    done += here;
  }
}

inline Result<void> ShmPlane::await(int r, ShmCounter ShmRank::*counter, std::uint64_t value) {
  if (auto there = await_entry(r); !there) return there;
  return await_counter(r, counter, value);
}

inline Result<void> ShmPlane::await_counter(int r, ShmCounter ShmRank::*counter,
                                            std::uint64_t value) {
  const auto& blocks = (memory_.ranks[r].*counter).blocks;
  if (waiter_.wait(memory_.ranks[r].bell, call_.deadline,
                   [&] { return blocks.load(std::memory_order_acquire) >= value; })) {
    return {};
  }
  return failure(r);
}

}  // namespace dlaunch
