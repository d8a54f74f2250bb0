// Calls of two ranks with a core each that do not reduce; see shm_engine.h.
#include <algorithm>

#include "base/failpoint.h"
#include "ring/kernels/copy.h"
#include "ring/shm/shm_engine.h"

namespace dlaunch {

// If the result goes around the caches, line-by-line turns cost more than they save.
void ShmPlane::take_over(std::size_t first, char* slot, std::size_t count) {
  each_piece(first, count, [&](const char*, char* to, std::size_t done, std::size_t n) {
    char* const from = slot + done * element_;
    if (streaming_)
      copy_streaming(to, from, n * element_);
    else
      copy_through(to, from, from, n * element_);
    failpoint_data("shm.taken_data", to, n * element_);
  });
}

// Takes `given` elements out of the slot and puts its own into it.
void ShmPlane::pass(char* slot, std::size_t first_in, std::size_t given, std::size_t first_out,
                    std::size_t taken) {
  std::size_t both = 0;
  if (call_.list == nullptr) {
    both = std::min(given, taken);
    char* const to = static_cast<char*>(call_.out) + first_out * element_;
    const char* const from = static_cast<const char*>(call_.in) + first_in * element_;
    if (streaming_)
      copy_through_streaming(to, slot, from, both * element_);
    else
      copy_through(to, slot, from, both * element_);
    failpoint_data("shm.given_data", slot, both * element_);
    failpoint_data("shm.taken_data", to, both * element_);
  }
  char* const rest = slot + both * element_;
  take_over(first_out + both, rest, taken - both);
  read_input(rest, first_in + both, given - both);
}

// Gives a block, and takes the one of kTransferSlots steps before.
Result<void> ShmPlane::transfer_block(std::size_t step, const Delivery& given,
                                      const Delivery& taken) {
  const int peer = 1 - rank_;
  const std::uint64_t number = passed_ + step;
  const bool gives = step < plan_.blocks;
  const Part give = gives ? piece(given, step) : Part{};
  const Part take = step >= kTransferSlots ? piece(taken, step - kTransferSlots) : Part{};
  if (give.count + take.count > 0 && number >= kTransferSlots) {
    auto free = await_counter(peer, &ShmRank::passed, number - kTransferSlots + 1);
    if (!free) return free;
    failpoint("shm.takes_block");
  }
  char* const slot = pair_ + layout_.transfer(rank_, number);
  pass(slot, given.from + give.first, give.count, taken.to + take.first, take.count);
  failpoint("shm.took_block");
  if (!gives) return {};
  publish(&ShmRank::passed, number + 1);
  copy_own(step);
  return {};
}

Result<void> ShmPlane::transfer_in_blocks() {
  const int peer = 1 - rank_;
  Delivery given = delivery(*shape_, rank_, peer), taken = delivery(*shape_, peer, rank_);
  if (lends_ || !given.exists) given = {};
  if (!taken.exists) taken = {};
  for (std::size_t step = 0; step < plan_.blocks + kTransferSlots; ++step) {
    if (step == kTransferSlots && taken.exists) {
      if (auto there = await_entry(peer); !there) return there;
      if (const Loan loan = loan_of(peer); loan.in_region != 0) {
        if (auto got = take_lent(peer, loan, taken); !got) return got;
        taken = {};
      }
    }
    if (auto moved = transfer_block(step, given, taken); !moved) return moved;
  }
  passed_ += plan_.blocks;
  base_ += plan_.blocks;
  publish(&ShmRank::done, base_);
  return lends_ ? await_takers() : Result<void>();
}

}  // namespace dlaunch
