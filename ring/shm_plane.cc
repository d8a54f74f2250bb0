// Collectives through shared memory.
//
// Small messages go in one shot: each rank puts its input where all can read it and, once everybody
// has arrived, reduces all inputs itself. Where ranks outnumber cores the last to arrive reduces
// for all and wakes the others, so that each of them is switched in once.
//
// Large ones are cut into blocks of one chunk per rank and go through a pipeline of three stages,
// all in memory that fits the second-level caches: copy the inputs of block i+1 into the staging
// slots, reduce the own chunk of block i over all ranks, copy the others' results of block i-1 out.
// The own chunk is never staged. Every element is combined in rank order by one call of reduce(),
// so that results do not depend on how a vector is cut.
//
// Who may write where: a slot is reused kSlots blocks later, when every rank's `done` says that it
// has read what it needed; an entry or small slot kEntries calls later, when every rank has entered
// the call after the one it served.

#include "ring/shm_plane.h"

#include <algorithm>
#include <cstring>

#include "base/rank_set.h"
#include "ring/reduce.h"
#include "ring/shm_memory.h"

namespace dlaunch {
namespace {

constexpr std::size_t kStreamingBytes = 4 << 20;

class ShmPlane : public Plane {
 public:
  ShmPlane(int rank, ShmMemory memory, AbortFlag& abort, const ShmOptions& options)
      : rank_(rank),
        n_(memory.shape.ranks),
        memory_(std::move(memory)),
        shape_(memory_.shape),
        abort_(abort),
        meet_(options.usable_cores < n_),
        waiter_(abort, !meet_),
        operands_(static_cast<std::size_t>(n_)) {
    // Whoever this rank sleeps on: waking all bells is cheap and only ever done once.
    abort.on_raise([keep = memory_.keep, ranks = memory_.ranks, header = memory_.header, n = n_] {
      for (int r = 0; r < n; ++r) ring_bell_always(ranks[r].bell);
      ring_bell_always(header->bell);
    });
  }

  const char* name() const override { return "shm"; }
  Result<void> run(const Call& call) override;

 private:
  // One rank's share of a block, as elements of the user's buffers.
  struct Slice {
    std::size_t from = 0;
    std::size_t count = 0;
  };

  std::size_t input_bytes() const;
  Result<void> await_own_entry();
  void arrive(const void* payload, std::size_t bytes);
  Result<void> await_entry(int r);
  Result<void> await_all_entries();
  bool entered(int r, std::uint64_t seq) const;
  template <class Counter>
  Result<void> await(int r, Counter ShmRank::*counter, std::uint64_t value);
  Error failure() const;

  Result<void> one_shot();
  Result<void> meet(bool reduce_for_all);
  const char* small_input(int r, std::size_t bytes) const;
  void finish_one_shot(std::size_t bytes);
  Result<void> reduce_in_blocks();
  Result<void> gather_in_blocks();
  Result<void> broadcast_in_blocks();

  Slice slice(std::size_t block, int r) const;
  Result<void> stage(std::size_t block);
  Result<void> reduce_chunk(std::size_t block);
  Result<void> copy_results(std::size_t block);
  Result<void> await_free_slot(std::uint64_t block);
  void publish(ShmCounter ShmRank::*counter, std::uint64_t blocks);
  void copy(void* to, const void* from, std::size_t bytes) const;

  const char* in(std::size_t element) const {
    return static_cast<const char*>(call_.in) + element * element_;
  }
  char* out(std::size_t element) const {
    return static_cast<char*>(call_.out) + element * element_;
  }
  ShmRank& own() const { return memory_.ranks[rank_]; }

  const int rank_;
  const int n_;
  const ShmMemory memory_;
  const ShmShape shape_;
  AbortFlag& abort_;
  const bool meet_;  // more ranks than cores
  const Waiter waiter_;

  Call call_;  // the one being run
  std::size_t element_ = 1;
  std::size_t chunk_ = 0;  // elements of a full chunk of this call
  bool streaming_ = false;
  TimePoint started_{};
  CallSignature signature_;
  std::vector<bool> verified_;         // whose entry of this call was compared with ours
  std::vector<const void*> operands_;  // scratch, in rank order
  std::uint64_t all_entered_ = 0;      // the last call that every rank was seen to enter
  std::uint64_t base_ = 0;             // blocks of all calls before this one
  std::uint64_t meetings_ = 0;
};

Result<void> ShmPlane::run(const Call& call) {
  if (abort_.raised()) return abort_.error();
  call_ = call;
  element_ = dtype_bytes(call.dtype);
  signature_ = signature_of(call);
  verified_.assign(static_cast<std::size_t>(n_), false);
  verified_[static_cast<std::size_t>(rank_)] = true;
  started_ = steady_now();
  const std::size_t bytes = input_bytes();
  if (auto free = await_own_entry(); !free) return free;
  if (bytes <= shape_.small_bytes) return one_shot();

  // Chunks small enough for a pipeline of some blocks, large enough to be worth their flags.
  const std::size_t wanted = bytes / (4 * static_cast<std::size_t>(n_)) / 64 * 64;
  chunk_ = std::clamp<std::size_t>(wanted, std::min<std::size_t>(shape_.chunk_bytes, 16 << 10),
                                   shape_.chunk_bytes) /
           element_;
  streaming_ = call.in != call.out && bytes >= kStreamingBytes;
  arrive(nullptr, 0);
  switch (call.collective) {
    case Collective::all_gather:
      return gather_in_blocks();
    case Collective::broadcast:
      return broadcast_in_blocks();
    default:
      return reduce_in_blocks();
  }
}

// What one rank gives, for reduce_scatter what it gives to all together.
std::size_t ShmPlane::input_bytes() const {
  const std::size_t bytes = call_.count * element_;
  if (call_.collective == Collective::barrier) return 0;
  return call_.collective == Collective::reduce_scatter ? bytes * static_cast<std::size_t>(n_)
                                                        : bytes;
}

// -- Arrival
// ---------------------------------------------------------------------------------------

// The call number's low half, compared in a way that survives its wrapping.
bool ShmPlane::entered(int r, std::uint64_t seq) const {
  const auto& entry = memory_.ranks[r].entries[seq % kEntries];
  const auto seen = entry.seq.load(std::memory_order_acquire);
  return static_cast<std::int32_t>(seen - static_cast<std::uint32_t>(seq)) >= 0;
}

// This call's entry and small slot served a call kEntries ago: everybody must have left that one.
Result<void> ShmPlane::await_own_entry() {
  if (call_.seq <= all_entered_ + kEntries - 1) return {};
  const std::uint64_t needed = call_.seq - (kEntries - 1);
  for (int r = 0; r < n_; ++r) {
    if (r != rank_ &&
        !waiter_.wait(memory_.ranks[r].bell, call_.deadline, [&] { return entered(r, needed); })) {
      return failure();
    }
  }
  all_entered_ = needed;
  return {};
}

// Tells the others what this rank has called, with a payload of at most kInlineBytes.
void ShmPlane::arrive(const void* payload, std::size_t bytes) {
  ShmEntry& entry = own().entries[call_.seq % kEntries];
  entry.packed = signature_.packed;
  entry.count = signature_.count;
  if (bytes > 0) std::memcpy(entry.payload, payload, bytes);
  entry.seq.store(signature_.seq, std::memory_order_release);
  ring_bell(own().bell);
}

Result<void> ShmPlane::await_entry(int r) {
  if (verified_[static_cast<std::size_t>(r)]) return {};
  if (!waiter_.wait(memory_.ranks[r].bell, call_.deadline, [&] { return entered(r, call_.seq); })) {
    return failure();
  }
  const ShmEntry& entry = memory_.ranks[r].entries[call_.seq % kEntries];
  const CallSignature theirs{entry.count, entry.packed, entry.seq.load(std::memory_order_relaxed)};
  if (!(theirs == signature_)) return mismatch_error(rank_, signature_, r, theirs);
  verified_[static_cast<std::size_t>(r)] = true;
  return {};
}

Result<void> ShmPlane::await_all_entries() {
  for (int r = 0; r < n_; ++r) {
    if (auto there = await_entry(r); !there) return there;
  }
  all_entered_ = call_.seq;
  return {};
}

template <class Counter>
Result<void> ShmPlane::await(int r, Counter ShmRank::*counter, std::uint64_t value) {
  if (auto there = await_entry(r); !there) return there;
  const auto& blocks = (memory_.ranks[r].*counter).blocks;
  if (waiter_.wait(memory_.ranks[r].bell, call_.deadline,
                   [&] { return blocks.load(std::memory_order_acquire) >= value; })) {
    return {};
  }
  return failure();
}

Error ShmPlane::failure() const {
  if (abort_.raised()) return abort_.error();
  RankSet arrived, missing;
  for (int r = 0; r < n_; ++r) (r == rank_ || entered(r, call_.seq) ? arrived : missing).insert(r);
  const std::string who =
      missing.empty() ? "progress of a rank that arrived" : format_rank_set(missing);
  return op_timeout_error(call_, steady_now() - started_, who, format_rank_set(arrived));
}

// -- One shot
// --------------------------------------------------------------------------------------

const char* ShmPlane::small_input(int r, std::size_t bytes) const {
  if (r == rank_) return static_cast<const char*>(call_.in);
  if (bytes <= kInlineBytes) return memory_.ranks[r].entries[call_.seq % kEntries].payload;
  return memory_.data[static_cast<std::size_t>(r)] + shape_.small(call_.seq);
}

Result<void> ShmPlane::one_shot() {
  const std::size_t bytes = input_bytes();
  const bool gives = call_.collective != Collective::broadcast || call_.root == rank_;
  if (gives && bytes > kInlineBytes) {
    std::memcpy(memory_.own + shape_.small(call_.seq), call_.in, bytes);
  }
  arrive(call_.in, gives && bytes <= kInlineBytes ? bytes : 0);
  if (call_.collective == Collective::broadcast) {
    if (call_.root == rank_) return {};
    if (auto there = await_entry(call_.root); !there) return there;
    if (bytes > 0) std::memcpy(call_.out, small_input(call_.root, bytes), bytes);
    return {};
  }
  if (meet_) {
    const bool central = call_.collective == Collective::all_reduce && bytes > 0;
    return meet(central);
  }
  if (auto all = await_all_entries(); !all) return all;
  finish_one_shot(bytes);
  return {};
}

// Everybody is here: each rank makes its own result.
void ShmPlane::finish_one_shot(std::size_t bytes) {
  if (bytes == 0) return;
  const bool scatter = call_.collective == Collective::reduce_scatter;
  const std::size_t offset = scatter ? static_cast<std::size_t>(rank_) * call_.count * element_ : 0;
  for (int r = 0; r < n_; ++r)
    operands_[static_cast<std::size_t>(r)] = small_input(r, bytes) + offset;
  if (call_.collective == Collective::all_gather) {
    for (int r = 0; r < n_; ++r) {
      char* to = out(static_cast<std::size_t>(r) * call_.count);
      const void* from = operands_[static_cast<std::size_t>(r)];
      if (to != from) std::memcpy(to, from, bytes);
    }
    return;
  }
  reduce(operands_, call_.out, call_.count, call_.dtype, call_.op, n_);
}

// The meeting point. `reduce_for_all`: the last to arrive reduces, the others copy its result.
Result<void> ShmPlane::meet(bool reduce_for_all) {
  ShmHeader& header = *memory_.header;
  const std::size_t bytes = input_bytes();
  ++meetings_;
  const auto arrivals = header.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrivals == meetings_ * static_cast<std::uint64_t>(n_)) {
    if (auto all = await_all_entries(); !all) return all;
    finish_one_shot(bytes);
    if (reduce_for_all) std::memcpy(memory_.own + shape_.small_result(call_.seq), call_.out, bytes);
    header.released.store(call_.seq << 16 | static_cast<std::uint64_t>(rank_),
                          std::memory_order_release);
    ring_bell(header.bell);
    return {};
  }
  std::uint64_t released = 0;
  if (!waiter_.wait(header.bell, call_.deadline, [&] {
        released = header.released.load(std::memory_order_acquire);
        return released >> 16 >= call_.seq;
      })) {
    return failure();
  }
  all_entered_ = call_.seq;
  if (reduce_for_all) {
    const auto reducer = released & 0xffff;
    std::memcpy(call_.out, memory_.data[reducer] + shape_.small_result(call_.seq), bytes);
  } else {
    finish_one_shot(bytes);
  }
  return {};
}

// -- Blocks
// ----------------------------------------------------------------------------------------

void ShmPlane::publish(ShmCounter ShmRank::*counter, std::uint64_t blocks) {
  (own().*counter).blocks.store(blocks, std::memory_order_release);
  ring_bell(own().bell);
}

void ShmPlane::copy(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0 || to == from) return;
  if (streaming_)
    copy_streaming(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

// Nobody reads the slots of `block` (a number over all calls) any more.
Result<void> ShmPlane::await_free_slot(std::uint64_t block) {
  if (block < kSlots) return {};
  for (int r = 0; r < n_; ++r) {
    const auto& done = memory_.ranks[r].done.blocks;
    if (!waiter_.wait(memory_.ranks[r].bell, call_.deadline,
                      [&] { return done.load(std::memory_order_acquire) >= block - kSlots + 1; })) {
      return failure();
    }
  }
  return {};
}

// Rank r's share of a block. all_reduce: a block is a run of n chunks, the last one shared evenly.
// reduce_scatter: a chunk out of each rank's part.
ShmPlane::Slice ShmPlane::slice(std::size_t block, int r) const {
  const auto n = static_cast<std::size_t>(n_), j = static_cast<std::size_t>(r);
  if (call_.collective == Collective::reduce_scatter) {
    const std::size_t from = block * chunk_;
    return {j * call_.count + from, std::min(chunk_, call_.count - from)};
  }
  const std::size_t from = block * chunk_ * n;
  const std::size_t count = std::min(chunk_ * n, call_.count - from);
  const std::size_t begin = count * j / n, end = count * (j + 1) / n;
  return {from + begin, end - begin};
}

Result<void> ShmPlane::stage(std::size_t block) {
  const std::uint64_t number = base_ + block;
  if (auto free = await_free_slot(number); !free) return free;
  for (int r = 0; r < n_; ++r) {
    if (r == rank_) continue;
    const Slice s = slice(block, r);
    std::memcpy(memory_.own + shape_.staging(number, r), in(s.from), s.count * element_);
  }
  publish(&ShmRank::staged, number + 1);
  return {};
}

Result<void> ShmPlane::reduce_chunk(std::size_t block) {
  const std::uint64_t number = base_ + block;
  const Slice s = slice(block, rank_);
  for (int r = 0; r < n_; ++r) {
    operands_[static_cast<std::size_t>(r)] =
        r == rank_ ? in(s.from)
                   : memory_.data[static_cast<std::size_t>(r)] + shape_.staging(number, rank_);
    if (r == rank_) continue;
    if (auto there = await(r, &ShmRank::staged, number + 1); !there) return there;
  }
  if (call_.collective == Collective::reduce_scatter) {
    reduce(operands_, out(block * chunk_), s.count, call_.dtype, call_.op, n_,
           streaming_ ? StoreHint::streaming : StoreHint::cached);
    publish(&ShmRank::done, number + 1);
    return {};
  }
  char* result = memory_.own + shape_.result(number);
  reduce(operands_, result, s.count, call_.dtype, call_.op, n_);
  publish(&ShmRank::reduced, number + 1);
  copy(out(s.from), result, s.count * element_);
  return {};
}

Result<void> ShmPlane::copy_results(std::size_t block) {
  const std::uint64_t number = base_ + block;
  for (int step = 1; step < n_; ++step) {
    const int r = (rank_ + step) % n_;  // each starts elsewhere
    if (auto there = await(r, &ShmRank::reduced, number + 1); !there) return there;
    const Slice s = slice(block, r);
    copy(out(s.from), memory_.data[static_cast<std::size_t>(r)] + shape_.result(number),
         s.count * element_);
  }
  publish(&ShmRank::done, number + 1);
  return {};
}

Result<void> ShmPlane::reduce_in_blocks() {
  const bool scatter = call_.collective == Collective::reduce_scatter;
  const std::size_t per_block = scatter ? chunk_ : chunk_ * static_cast<std::size_t>(n_);
  const std::size_t blocks = (call_.count + per_block - 1) / per_block;
  if (auto staged = stage(0); !staged) return staged;
  for (std::size_t block = 0; block <= blocks; ++block) {
    if (block + 1 < blocks) {
      if (auto staged = stage(block + 1); !staged) return staged;
    }
    if (block < blocks) {
      if (auto reduced = reduce_chunk(block); !reduced) return reduced;
    }
    if (block > 0 && !scatter) {
      if (auto copied = copy_results(block - 1); !copied) return copied;
    }
  }
  base_ += blocks;
  return {};
}

Result<void> ShmPlane::gather_in_blocks() {
  const std::size_t blocks = (call_.count + chunk_ - 1) / chunk_;
  for (std::size_t block = 0; block <= blocks; ++block) {
    const std::size_t from = block * chunk_;
    if (block < blocks) {
      const std::size_t bytes = std::min(chunk_, call_.count - from) * element_;
      if (auto free = await_free_slot(base_ + block); !free) return free;
      std::memcpy(memory_.own + shape_.staging(base_ + block, 0), in(from), bytes);
      publish(&ShmRank::staged, base_ + block + 1);
      copy(out(static_cast<std::size_t>(rank_) * call_.count + from), in(from), bytes);
    }
    if (block == 0) continue;
    const std::size_t behind = from - chunk_;
    const std::size_t bytes = std::min(chunk_, call_.count - behind) * element_;
    for (int step = 1; step < n_; ++step) {
      const int r = (rank_ + step) % n_;
      if (auto there = await(r, &ShmRank::staged, base_ + block); !there) return there;
      copy(out(static_cast<std::size_t>(r) * call_.count + behind),
           memory_.data[static_cast<std::size_t>(r)] + shape_.staging(base_ + block - 1, 0), bytes);
    }
    publish(&ShmRank::done, base_ + block);
  }
  base_ += blocks;
  return {};
}

Result<void> ShmPlane::broadcast_in_blocks() {
  const std::size_t blocks = (call_.count + chunk_ - 1) / chunk_;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t from = block * chunk_;
    const std::size_t bytes = std::min(chunk_, call_.count - from) * element_;
    const std::uint64_t number = base_ + block;
    if (call_.root == rank_) {
      if (auto free = await_free_slot(number); !free) return free;
      std::memcpy(memory_.own + shape_.staging(number, 0), in(from), bytes);
      publish(&ShmRank::staged, number + 1);
    } else {
      if (auto there = await(call_.root, &ShmRank::staged, number + 1); !there) return there;
      copy(out(from),
           memory_.data[static_cast<std::size_t>(call_.root)] + shape_.staging(number, 0), bytes);
    }
    publish(&ShmRank::done, number + 1);
  }
  base_ += blocks;
  return {};
}

}  // namespace

std::unique_ptr<Plane> make_shm_plane(int rank, ShmMemory memory, AbortFlag& abort,
                                      const ShmOptions& options) {
  return std::make_unique<ShmPlane>(rank, std::move(memory), abort, options);
}

}  // namespace dlaunch
