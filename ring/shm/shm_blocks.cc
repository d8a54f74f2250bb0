// Large messages, block by block; see shm_engine.h.
#include <cstring>

#include "base/failpoint.h"
#include "ring/kernels/reduce.h"
#include "ring/shm/shm_engine.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostAlike = 2 << 20;

}  // namespace

void ShmPlane::publish(ShmCounter ShmRank::*counter, std::uint64_t blocks) {
  failpoint("shm.publishes");
  (own().*counter).blocks.store(blocks, std::memory_order_release);
  failpoint("shm.published");
  ring_bell(own().bell);
}

// Waits until no rank reads the slots of `block` (a number over all calls).
Result<void> ShmPlane::await_free_slot(std::uint64_t block) {
  if (block < kSlots) return {};
  for (int r = 0; r < n_; ++r) {
    auto read = await_counter(r, &ShmRank::done, block - kSlots + 1);
    if (!read) return read;
  }
  return {};
}

// The place of a chunk of this block in its slot.
std::size_t ShmPlane::turn(std::uint64_t block) const {
  if (uses_barrier_) return 0;
  // Data that a rank gives alike to all has the room of all chunks. Longer data drives out enough
  // of the cache by itself.
  const auto& traits = traits_of(call_.collective);
  const bool alike = !traits.reduces && !traits.in_parts && plan_.input_bytes <= kMostAlike;
  const std::size_t room = layout_.chunk_bytes * (alike ? static_cast<std::size_t>(n_) : 1);
  const std::size_t bytes = (plan_.chunk * element_ + 63) / 64 * 64;
  return block / kSlots % (room / bytes) * bytes;
}

// -- Reductions

// Rank r's share of a block. reduce_scatter: a chunk of each rank's part; else a block is a run of
// n chunks, the last one shared evenly.
Part ShmPlane::slice(std::size_t block, int r) const {
  const auto n = static_cast<std::size_t>(n_), j = static_cast<std::size_t>(r);
  if (call_.collective == Collective::reduce_scatter) {
    const Part part = part_of(*shape_, r);
    const std::size_t from = std::min(block * plan_.chunk, part.count);
    return {part.first + from, std::min(plan_.chunk, part.count - from)};
  }
  const std::size_t from = block * plan_.chunk * n;
  const std::size_t count = std::min(plan_.chunk * n, call_.count - from);
  const std::size_t begin = count * j / n, end = count * (j + 1) / n;
  return {from + begin, end - begin};
}

Result<void> ShmPlane::stage(std::size_t block) {
  const std::uint64_t number = base_ + block;
  if (auto free = await_free_slot(number); !free || direct_) return free;
  for (int r = 0; r < n_; ++r) {
    if (r == rank_) continue;
    const Part s = slice(block, r);
    read_input(own_staging_ + staging(number, r), s.first, s.count);
    failpoint("shm.staged_chunk");
  }
  publish(&ShmRank::staged, number + 1);
  return {};
}

Result<void> ShmPlane::reduce_chunk(std::size_t block) {
  const std::uint64_t number = base_ + block;
  for (int r = 0; r < n_; ++r) {
    if (r == rank_ || direct_) continue;
    if (auto there = await(r, &ShmRank::staged, number + 1); !there) return there;
  }
  failpoint("shm.reduces");
  const Part s = slice(block, rank_);
  // Only this rank sees a reduce_scatter's result, and the part that the root of a reduce computes.
  const bool shared = call_.collective == Collective::all_reduce ||
                      (call_.collective == Collective::reduce && call_.root != rank_);
  char* const result = const_cast<char*>(result_of(rank_, number, s));
  const std::size_t own_part = part_of(*shape_, rank_).first;
  const bool scatter = call_.collective == Collective::reduce_scatter;
  each_piece(s.first, s.count, [&](const char* in, char* out, std::size_t done, std::size_t n) {
    for (int r = 0; r < n_; ++r) {
      operands_[static_cast<std::size_t>(r)] =
          r == rank_ ? in : operand_of(r, number, s) + done * element_;
    }
    if (scatter) out -= own_part * element_;
    char* const to = shared ? result + done * element_ : out;
    reduce(operands_, to, n, call_.dtype, call_.op, n_,
           streaming_ && !shared ? StoreHint::streaming : StoreHint::cached);
    failpoint_data("shm.reduced_data", to, n * element_);
  });
  if (shared) publish(&ShmRank::reduced, number + 1);
  if (call_.collective == Collective::all_reduce) write_output(s.first, result, s.count);
  if (!takes_results()) publish(&ShmRank::done, number + 1);
  return {};
}

bool ShmPlane::takes_results() const {
  return call_.collective == Collective::all_reduce ||
         (call_.collective == Collective::reduce && call_.root == rank_);
}

Result<void> ShmPlane::copy_results(std::size_t block) {
  const std::uint64_t number = base_ + block;
  for (int step = 1; step < n_; ++step) {
    const int r = (rank_ + step) % n_;  // each starts elsewhere
    if (auto there = await(r, &ShmRank::reduced, number + 1); !there) return there;
    const Part s = slice(block, r);
    write_output(s.first, result_of(r, number, s), s.count);
    failpoint("shm.copied_result");
  }
  publish(&ShmRank::done, number + 1);
  return {};
}

Result<void> ShmPlane::reduce_in_blocks() {
  const std::size_t blocks = plan_.blocks;
  if (auto staged = stage(0); !staged) return staged;
  for (std::size_t block = 0; block <= blocks; ++block) {
    if (block + 1 < blocks) {
      if (auto staged = stage(block + 1); !staged) return staged;
    }
    if (block < blocks) {
      if (auto reduced = reduce_chunk(block); !reduced) return reduced;
    }
    if (block > 0 && takes_results()) {
      if (auto copied = copy_results(block - 1); !copied) return copied;
    }
  }
  base_ += blocks;
  return direct_ ? await_takers() : Result<void>();
}

// -- Moves

// A block holds the next chunk of every delivery. Data that a rank gives alike to all lies in its
// first staging chunk, data for one rank in that rank's.
Part ShmPlane::piece(const Delivery& d, std::size_t block) const {
  const std::size_t from = std::min(block * plan_.chunk, d.count);
  return {from, std::min(plan_.chunk, d.count - from)};
}

Result<void> ShmPlane::deliver_in_blocks() {
  const std::size_t blocks = plan_.blocks;
  for (std::size_t block = 0; block <= blocks; ++block) {
    if (block < blocks) {
      if (auto given = give_block(block); !given) return given;
    }
    if (block == 0) continue;
    if (auto taken = take_block(block - 1); !taken) return taken;
  }
  base_ += blocks;
  return lends_ ? await_takers() : Result<void>();
}

Result<void> ShmPlane::give_block(std::size_t block) {
  const std::uint64_t number = base_ + block;
  const bool to_each = traits_of(call_.collective).in_parts;
  if (auto free = await_free_slot(number); !free) return free;
  bool gave = false;
  for (int step = 1; step < n_; ++step) {
    const int r = (rank_ + step) % n_;
    const Delivery d = delivery(*shape_, rank_, r);
    if (!d.exists || lends_ || (gave && !to_each)) continue;
    const Part p = piece(d, block);
    read_input(own_staging_ + staging(number, to_each ? r : 0), d.from + p.first, p.count);
    gave = true;
  }
  if (gave) publish(&ShmRank::staged, number + 1);
  copy_own(block);
  return {};
}

// What a rank gives to itself.
void ShmPlane::copy_own(std::size_t block) {
  const Delivery own = delivery(*shape_, rank_, rank_);
  if (!own.exists || call_.collective == Collective::broadcast) return;
  const Part p = piece(own, block);
  const auto* const in = static_cast<const char*>(call_.in);
  write_output(own.to + p.first, in + (own.from + p.first) * element_, p.count);
}

Result<void> ShmPlane::take_block(std::size_t block) {
  const std::uint64_t number = base_ + block;
  const int chunk = traits_of(call_.collective).in_parts ? rank_ : 0;
  for (int step = 1; step < n_; ++step) {
    const int r = (rank_ + step) % n_;  // each starts elsewhere
    const Delivery d = delivery(*shape_, r, rank_);
    if (!d.exists) continue;
    if (auto there = await_entry(r); !there) return there;
    if (const Loan loan = loan_of(r); loan.in_region != 0) {
      if (block > 0) continue;
      if (auto taken = take_lent(r, loan, d); !taken) return taken;
      continue;
    }
    if (auto there = await(r, &ShmRank::staged, number + 1); !there) return there;
    const Part p = piece(d, block);
    write_output(d.to + p.first, staged_by(r, number, chunk), p.count);
    failpoint("shm.took_block");
  }
  publish(&ShmRank::done, number + 1);
  return {};
}

}  // namespace dlaunch
