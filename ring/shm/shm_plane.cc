#include "ring/shm/shm_plane.h"

#include <cstring>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/rank_set.h"
#include "ring/kernels/copy.h"
#include "ring/kernels/reduce.h"
#include "ring/plan/schedule.h"
#include "ring/shm/shm_staging.h"

namespace dlaunch {
namespace {

// About how much of the buffers caches keep: for all ranks together and for one rank.
constexpr std::size_t kKeptOfAll = 24 << 20, kKeptOfEach = 6 << 20;

}  // namespace

Result<void> ShmPlane::run(const Call& call) {
  if (abort_.raised()) return abort_.error();
  call_ = call;
  element_ = dtype_bytes(call.dtype);
  signature_ = signature_of(call, n_);
  verified_.assign(static_cast<std::size_t>(n_), false);
  verified_[static_cast<std::size_t>(rank_)] = true;
  direct_ = false;
  if (auto free = await_own_entry(); !free) return free;
  find_plan();
  stages_ = false;
  if (plan_.algorithm < ShmPlan::Algorithm::blocks) return one_shot();
  const bool reduces = traits_of(call.collective).reduces;
  Loans loans(*this, reduces);
  if (auto ok = loans.borrow(); !ok) return ok;
  auto done = in_blocks(reduces);
  if (done) loans.went_well();
  return done;
}

// Programs repeat their calls: small ones would spend a tenth of their time here.
void ShmPlane::find_plan() {
  const bool alike = call_.counts == nullptr && call_.splits == nullptr && call_.members == nullptr;
  const PlanKey key{call_.collective, call_.dtype, call_.op, call_.root, call_.count};
  Planned& planned = planned_[alike ? key.slot() : kPlans];
  if (!alike || planned.key != key) {
    planned.shape = shape_of(call_, n_);
    planned.plan = plan(planned.shape);
    planned.key = key;
  }
  shape_ = &planned.shape;
  plan_ = planned.plan;
}

Result<void> ShmPlane::in_blocks(bool reduces) {
  lend();
  arrive(0);
  if (borrows_pair(reduces)) {
    if (auto there = await_pair(); !there) return there;
  }
  if (reduces) {
    const auto direct = all_in_regions();
    if (!direct) return direct.error();
    direct_ = *direct;
    if (direct_) plan_ = plan_direct(*shape_, n_, layout_);
  }
  streaming_ = streams();
  if (!reduces) return layout_.exchange_bytes > 0 ? transfer_in_blocks() : deliver_in_blocks();
  return plan_.algorithm == ShmPlan::Algorithm::exchange ? exchange_in_blocks()
                                                         : reduce_in_blocks();
}

std::string ShmPlane::explain(const Call& call) const {
  const Shape shape = shape_of(call, n_);
  const ShmPlan plan = this->plan(shape);
  const std::string by = rule_note(plan.by_rule);
  const std::size_t chunk = plan.chunk * dtype_bytes(call.dtype) >> 10;
  switch (plan.algorithm) {
    case ShmPlan::Algorithm::in_entry:
      return "shm: in the cache line of the arrival";
    case ShmPlan::Algorithm::one_shot:
      return fmt::format("shm: one shot{}", by);
    case ShmPlan::Algorithm::blocks:
      return fmt::format("shm: {} blocks, chunks of {} KiB{}", plan.blocks, chunk, by);
    case ShmPlan::Algorithm::exchange:
      return fmt::format("shm: exchange, {} blocks, chunks of {} KiB{}", plan.blocks, chunk, by);
  }
  return "";
}

std::size_t ShmPlane::own_input() const {
  if (call_.collective == Collective::barrier) return 0;
  const bool gives = call_.collective != Collective::broadcast || call_.root == rank_;
  return gives ? in_count(*shape_, rank_, n_) * element_ : 0;
}

// Whether stores of results go around the caches. Not in an exchange, which moves so much other
// data meanwhile that the lines are in the cache in time.
bool ShmPlane::streams() const {
  const bool exchanges =
      plan_.algorithm == ShmPlan::Algorithm::exchange && call_.collective == Collective::all_reduce;
  if (call_.in == call_.out || exchanges) return false;
  const std::size_t each =
      (in_count(*shape_, rank_, n_) + out_count(*shape_, rank_, n_)) * element_;
  return each >= kKeptOfEach && each * static_cast<std::size_t>(n_) >= kKeptOfAll;
}

void ShmPlane::read_input(void* to, std::size_t first, std::size_t count) const {
  each_piece(first, count, [&](const char* from, char*, std::size_t done, std::size_t n) {
    copy_cached(static_cast<char*>(to) + done * element_, from, n * element_);
    failpoint_data("shm.given_data", static_cast<char*>(to) + done * element_, n * element_);
  });
}

void ShmPlane::write_output(std::size_t first, const void* from, std::size_t count) const {
  each_piece(first, count, [&](const char*, char* to, std::size_t done, std::size_t n) {
    copy(to, static_cast<const char*>(from) + done * element_, n * element_);
    failpoint_data("shm.taken_data", to, n * element_);
  });
}

void ShmPlane::copy(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0 || to == from) return;
  if (streaming_)
    copy_streaming(to, from, bytes);
  else
    copy_cached(to, from, bytes);
}

// -- Arrival

// Compares the low half of the call number in a way that survives its wrapping.
bool ShmPlane::entered(int r, std::uint64_t seq) const {
  const auto& entry = memory_.ranks[r].entries[seq % kEntries];
  const auto seen = entry.seq.load(std::memory_order_acquire);
  return static_cast<std::int32_t>(seen - static_cast<std::uint32_t>(seq)) >= 0;
}

// This call's entry and small slot served a call kEntries ago: wait until every rank has left that
// one.
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

// Publishes this rank's call, with the first part of its input.
void ShmPlane::arrive(std::size_t inline_count) {
  ShmEntry& entry = own().entries[call_.seq % kEntries];
  waiter_.tell_core();
  entry.packed = signature_.packed;
  entry.count = signature_.count;
  if (inline_count > 0) read_input(entry.payload, 0, inline_count);
  failpoint("shm.arrives");
  entry.seq.store(signature_.seq, std::memory_order_release);
  failpoint("shm.arrived");
  // An offer follows at once, and wakes ranks that wait for either.
  if (plan_.algorithm != ShmPlan::Algorithm::exchange || lends_) ring_bell(own().bell);
}

Result<void> ShmPlane::await_entry(int r) {
  if (verified_[static_cast<std::size_t>(r)]) return {};
  if (!waiter_.wait(memory_.ranks[r].bell, call_.deadline, [&] { return entered(r, call_.seq); })) {
    return failure();
  }
  const ShmEntry& entry = memory_.ranks[r].entries[call_.seq % kEntries];
  const CallSignature theirs{entry.count, entry.packed, entry.seq.load(std::memory_order_relaxed)};
  if (!(theirs == signature_))
    return mismatch_error(name_of(rank_), signature_, name_of(r), theirs);
  verified_[static_cast<std::size_t>(r)] = true;
  return stages_ ? find_staging(r) : Result<void>();
}

Result<void> ShmPlane::await_all_entries() {
  for (int r = 0; r < n_; ++r) {
    if (auto there = await_entry(r); !there) return there;
  }
  all_entered_ = call_.seq;
  return {};
}

Error ShmPlane::failure(int awaited) const {
  if (abort_.raised()) return abort_.error();
  RankSet arrived, missing;
  for (int r = 0; r < n_; ++r) {
    (r == rank_ || entered(r, call_.seq) ? arrived : missing).insert(name_of(r));
  }
  if (missing.empty()) {
    // All have begun: then the awaited rank, or any of them.
    for (int r = 0; r < n_; ++r) {
      if (r != rank_ && (awaited < 0 || r == awaited)) missing.insert(name_of(r));
    }
    for (const int r : missing) arrived.erase(r);
  }
  return op_timeout_error(call_, waited_in(call_, steady_now()), format_rank_set(missing),
                          format_rank_set(arrived));
}

// -- One shot

const char* ShmPlane::small_input(int r) const {
  if (r == rank_ && call_.list == nullptr) return static_cast<const char*>(call_.in);
  if (plan_.algorithm == ShmPlan::Algorithm::in_entry)
    return memory_.ranks[r].entries[call_.seq % kEntries].payload;
  return memory_.small[static_cast<std::size_t>(r)] + layout_.small(call_.seq);
}

Result<void> ShmPlane::one_shot() {
  const std::size_t count = own_input() / element_;
  const bool travels_inline = plan_.algorithm == ShmPlan::Algorithm::in_entry;
  streaming_ = false;
  if (!travels_inline) read_input(memory_.own_small + layout_.small(call_.seq), 0, count);
  arrive(travels_inline ? count : 0);
  const auto& traits = traits_of(call_.collective);
  if (uses_barrier_ && !traits.rooted) {
    return barrier(call_.collective == Collective::all_reduce && call_.count > 0);
  }
  if (auto there = await_givers(); !there) return there;
  failpoint("shm.givers_there");
  finish_one_shot();
  return {};
}

// Waits for the ranks whose input this rank's result needs. The root of a broadcast or scatter
// waits for no rank; in a reduce or gather only the root waits.
Result<void> ShmPlane::await_givers() {
  const auto& traits = traits_of(call_.collective);
  if (!traits.rooted || (traits.out_at_root && call_.root == rank_)) return await_all_entries();
  return traits.out_at_root ? Result<void>() : await_entry(call_.root);
}

// Two ranks both write the slots, but not the entries.
void ShmPlane::take_small(int r, const Delivery& d) {
  const char* const from = small_input(r) + d.from * element_;
  const bool in_slot = plan_.algorithm == ShmPlan::Algorithm::one_shot;
  if (in_slot && r != rank_ && layout_.exchange_bytes > 0)
    take_over(d.to, const_cast<char*>(from), d.count);
  else
    write_output(d.to, from, d.count);
}

// All needed inputs are here: makes this rank's own result.
void ShmPlane::finish_one_shot() {
  const std::size_t count = out_count(*shape_, rank_, n_);
  if (count == 0 || call_.collective == Collective::barrier) return;
  if (!traits_of(call_.collective).reduces) {
    for (int r = 0; r < n_; ++r) {
      const Delivery d = delivery(*shape_, r, rank_);
      // The root of a broadcast has its data already, and others may write back what it gave.
      if (r == rank_ && call_.collective == Collective::broadcast) continue;
      if (d.exists && d.count > 0) take_small(r, d);
    }
    return;
  }
  const bool scatter = call_.collective == Collective::reduce_scatter;
  const std::size_t offset = scatter ? part_of(*shape_, rank_).first * element_ : 0;
  each_piece(0, count, [&](const char*, char* to, std::size_t done, std::size_t n) {
    for (int r = 0; r < n_; ++r) {
      operands_[static_cast<std::size_t>(r)] = small_input(r) + offset + done * element_;
    }
    reduce(operands_, to, n, call_.dtype, call_.op, n_);
    failpoint_data("shm.reduced_data", to, n * element_);
  });
}

std::vector<int> ShmPlane::cores_of_others() const {
  std::vector<int> cores;
  for (int r = 0; r < n_; ++r) {
    if (r != rank_) cores.push_back(core_of(r));
  }
  return cores;
}

bool ShmPlane::keeps_core() {
  const auto seen_on = [this](int r) { return core_of(r); };
  const auto has_come = [this](int r) { return entered(r, call_.seq); };
  const Core core = while_waiting(rank_, n_, share_, seen_on, has_come);
  if (core == Core::leave) waiter_.leave(core_of(rank_));
  return core == Core::keep;
}

// A barrier. `reduce_for_all`: the last rank to arrive reduces, and the others copy its
// result. It puts the result in place of its input, which no other rank reads.
Result<void> ShmPlane::barrier(bool reduce_for_all) {
  ShmHeader& header = *memory_.header;
  ++barriers_;
  const auto arrivals = header.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrivals == barriers_ * static_cast<std::uint64_t>(n_)) {
    failpoint("shm.last_arrived");
    if (auto all = await_all_entries(); !all) return all;
    finish_one_shot();
    if (reduce_for_all) {
      each_piece(0, call_.count, [&](const char*, char* from, std::size_t done, std::size_t n) {
        copy_cached(memory_.own_small + layout_.small(call_.seq) + done * element_, from,
                    n * element_);
      });
    }
    failpoint("shm.releases");
    header.released.store(call_.seq << 16 | static_cast<std::uint64_t>(rank_),
                          std::memory_order_release);
    ring_bell(header.bell);
    return {};
  }
  std::uint64_t released = 0;
  const auto is_released = [&] {
    released = header.released.load(std::memory_order_acquire);
    return released >> 16 >= call_.seq;
  };
  if (!waiter_.wait(header.bell, call_.deadline, is_released, keeps_core())) {
    return failure();
  }
  all_entered_ = call_.seq;
  if (reduce_for_all) {
    const auto reducer = released & 0xffff;
    if (reducer >= memory_.small.size()) {
      return Error{.code = Errc::protocol, .what = "shared memory: its contents make no sense"};
    }
    write_output(0, memory_.small[reducer] + layout_.small(call_.seq), call_.count);
  } else {
    finish_one_shot();
  }
  return {};
}

std::unique_ptr<Plane> make_shm_plane(int rank, ShmMemory memory, AbortFlag& abort,
                                      const ShmOptions& options) {
  return std::make_unique<ShmPlane>(rank, std::move(memory), abort, options);
}

}  // namespace dlaunch
