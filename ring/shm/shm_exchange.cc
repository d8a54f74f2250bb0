// The all_reduce and reduce of two ranks with a core each; see shm_engine.h.
#include <algorithm>
#include <array>

#include "base/failpoint.h"
#include "ring/kernels/reduce.h"
#include "ring/shm/shm_engine.h"

namespace dlaunch {
namespace {

// The number of blocks offered before the reduced one, so that neither rank waits for the other; as
// many again are reduced before the one that is taken back.
constexpr std::size_t kAhead = 2;
static_assert(2 * kAhead == kSlots);  // the next offer uses the place of the block taken back

}  // namespace

// The half of a block that `reducer` reduces, in the slot of the other rank, which offers it.
ShmPlane::Turn ShmPlane::turn_of(std::size_t block, int reducer) const {
  if (block >= plan_.blocks) return {};
  return {.half = slice(block, reducer), .slot = exchange_slot(1 - reducer, base_ + block)};
}

void ShmPlane::take_back(const Turn& turn, std::size_t from) {
  write_output(turn.half.first + from, turn.slot + from * element_, turn.half.count - from);
}

void ShmPlane::offer(const Turn& turn, std::size_t from) {
  read_input(turn.slot + from * element_, turn.half.first + from, turn.half.count - from);
}

// The result goes to `out` and replaces the other rank's input; in a reduce it goes to the one of
// the two where the root finds it.
void ShmPlane::combine(const Turn& turn, std::size_t from) {
  char* const slot = turn.slot + from * element_;
  each_piece(turn.half.first + from, turn.half.count - from,
             [&](const char* in, char* out, std::size_t done, std::size_t n) {
               combine_piece(in, slot + done * element_, out, n);
             });
}

// Runs all three turns until one of them ends; returns the number of elements of each.
std::size_t ShmPlane::exchange_together(const Turn& back, const Turn& ahead, const Turn& own) {
  const std::size_t count = std::min({back.half.count, ahead.half.count, own.half.count});
  const auto together = [&](const char* in, char* out, char* taken, const char* offered,
                            std::size_t at, std::size_t n) {
    char* const theirs = own.slot + at * element_;
    reduce_pair(in_rank_order(in, theirs), out, theirs, n, call_.dtype, call_.op, n_,
                {.out = taken, .through = back.slot + at * element_, .in = offered});
    failpoint_data("shm.reduced_data", theirs, n * element_);
    failpoint_data("shm.taken_data", taken, n * element_);
  };
  // Cut into pieces that lie in one tensor of each turn: of `back`, then `ahead`, then `own`.
  using Size = std::size_t;
  each_piece(back.half.first, count, [&](const char*, char* taken, Size b, Size in_b) {
    each_piece(ahead.half.first + b, in_b, [&](const char* offered, char*, Size a, Size in_a) {
      const Size at = b + a;
      each_piece(own.half.first + at, in_a, [&](const char* in, char* out, Size o, Size n) {
        together(in, out, taken + (a + o) * element_, offered + o * element_, at + o, n);
      });
    });
  });
  return count;
}

std::array<const void*, 2> ShmPlane::in_rank_order(const void* own, const void* theirs) const {
  if (rank_ == 0) return {own, theirs};
  return {theirs, own};
}

void ShmPlane::combine_piece(const char* in, char* shared, char* out, std::size_t count) {
  const auto operands = in_rank_order(in, shared);
  const auto reduced = [&] { failpoint_data("shm.reduced_data", shared, count * element_); };
  if (!takes_results()) {
    reduce(operands, shared, count, call_.dtype, call_.op, n_);
    return reduced();
  }
  if (streaming_) {
    return reduce(operands, out, count, call_.dtype, call_.op, n_, StoreHint::streaming);
  }
  // Write `shared` even if no rank takes it: the other rank will write there.
  reduce_pair(operands, out, shared, count, call_.dtype, call_.op, n_);
  reduced();
}

// Offers block `step` in the place of an earlier one that it takes back, and reduces a block
// between the two: so a slot is free for an offer without asking. Loads from memory, lines from the
// other rank and stores to memory take turns of some lines each. With turns of whole blocks a core
// would wait now for memory, now for the other core: an all_reduce of 64 MiB in place takes a fifth
// more time that way, one of 16 MiB two fifths.
Result<void> ShmPlane::exchange_step(std::size_t step) {
  const int peer = 1 - rank_;
  // Blocks that do not exist yet have numbers above all others.
  const std::size_t reduced = step - kAhead, taken = step - kSlots;
  const Turn ahead = turn_of(step, peer), own = turn_of(reduced, rank_);
  const Turn back = takes_results() ? turn_of(taken, peer) : Turn{};
  if (taken < plan_.blocks) {
    auto there = await(peer, &ShmRank::reduced, base_ + taken + 1);
    if (!there) return there;
    failpoint("shm.takes_back");
  }
  if (own.half.count > 0) {
    auto there = await(peer, &ShmRank::staged, base_ + reduced + 1);
    if (!there) return there;
    failpoint("shm.combines");
  }
  if (ahead.half.count > 0) failpoint("shm.offers");
  const bool all = call_.collective == Collective::all_reduce;
  const std::size_t together = all ? exchange_together(back, ahead, own) : 0;
  take_back(back, together);
  offer(ahead, together);
  if (step < plan_.blocks) publish(&ShmRank::staged, base_ + step + 1);
  combine(own, together);
  if (reduced < plan_.blocks) publish(&ShmRank::reduced, base_ + reduced + 1);
  return {};
}

Result<void> ShmPlane::exchange_in_blocks() {
  const std::size_t blocks = plan_.blocks;
  // These blocks take no slots that others wait for.
  own().done.blocks.store(base_ + blocks, std::memory_order_release);
  for (std::size_t step = 0; step < blocks + kSlots; ++step) {
    if (auto done = exchange_step(step); !done) return done;
  }
  base_ += blocks;
  return {};
}

}  // namespace dlaunch
