// The all_reduce and reduce of two ranks with a core each; see shm_engine.h.
#include <array>
#include <cstring>

#include "base/failpoint.h"
#include "ring/kernels/reduce.h"
#include "ring/shm/shm_engine.h"

namespace dlaunch {
namespace {

// Blocks that are offered before the one that is reduced, for neither rank to wait for the other.
constexpr std::size_t kAhead = 2;
static_assert(kAhead + 2 <= kSlots);  // beside that one, and the one before it that is taken back

// Of what is streamed on: so much is reduced at a time, to be in the first-level cache still.
constexpr std::size_t kPieceBytes = 8 << 10;

}  // namespace

// The half of a block that the other rank reduces.
void ShmPlane::offer(std::size_t block) {
  const std::uint64_t number = base_ + block;
  const Part s = slice(block, 1 - rank_);
  char* const slot = exchange_slot(rank_, number);
  failpoint("shm.offers");
  each_piece(s.first, s.count, [&](const char* in, char*, std::size_t done, std::size_t n) {
    std::memcpy(slot + done * element_, in, n * element_);
  });
  publish(&ShmRank::staged, number + 1);
}

// The own half: the result goes to `out` and to where the other rank's input was, or, of a reduce,
// to that of both where the root finds it.
Result<void> ShmPlane::combine(std::size_t block) {
  const std::uint64_t number = base_ + block;
  const int peer = 1 - rank_;
  if (auto there = await(peer, &ShmRank::staged, number + 1); !there) return there;
  const Part s = slice(block, rank_);
  char* const slot = exchange_slot(peer, number);
  failpoint("shm.combines");
  each_piece(s.first, s.count, [&](const char* in, char* out, std::size_t done, std::size_t n) {
    combine_piece(in, slot + done * element_, out, n);
  });
  publish(&ShmRank::reduced, number + 1);
  return {};
}

void ShmPlane::combine_piece(const char* in, char* shared, char* out, std::size_t count) {
  const auto operands = [&](std::size_t from) -> std::array<const void*, 2> {
    const void *const own = in + from * element_, *const theirs = shared + from * element_;
    if (rank_ == 0) return {own, theirs};
    return {theirs, own};
  };
  if (call_.collective == Collective::reduce) {
    char* const to = takes_results() ? out : shared;
    const bool far = streaming_ && to == out;
    return reduce(operands(0), to, count, call_.dtype, call_.op, n_,
                  far ? StoreHint::streaming : StoreHint::cached);
  }
  if (!streaming_) {
    return reduce_pair(operands(0), out, shared, count, call_.dtype, call_.op, n_);
  }
  const std::size_t piece = kPieceBytes / element_;
  for (std::size_t from = 0; from < count; from += piece) {
    const std::size_t n = std::min(piece, count - from);
    char* const result = shared + from * element_;
    reduce(operands(from), result, n, call_.dtype, call_.op, n_);
    copy_streaming(out + from * element_, result, n * element_);
  }
}

Result<void> ShmPlane::take_back(std::size_t block) {
  const std::uint64_t number = base_ + block;
  const int peer = 1 - rank_;
  if (auto there = await(peer, &ShmRank::reduced, number + 1); !there) return there;
  failpoint("shm.takes_back");
  const Part s = slice(block, peer);
  if (takes_results()) write_output(s.first, exchange_slot(rank_, number), s.count);
  return {};
}

// A slot is free for offer(b) once take_back(b - kSlots) is over: nobody needs to be asked.
Result<void> ShmPlane::exchange_in_blocks() {
  const std::size_t blocks = plan_.blocks;
  // These blocks take none of the slots that others wait for.
  own().done.blocks.store(base_ + blocks, std::memory_order_release);
  for (std::size_t block = 0; block < std::min(kAhead, blocks); ++block) offer(block);
  for (std::size_t block = 0; block <= blocks; ++block) {
    if (block + kAhead < blocks) offer(block + kAhead);
    if (block < blocks) {
      if (auto combined = combine(block); !combined) return combined;
    }
    if (block > 0) {
      if (auto taken = take_back(block - 1); !taken) return taken;
    }
  }
  base_ += blocks;
  return {};
}

}  // namespace dlaunch
