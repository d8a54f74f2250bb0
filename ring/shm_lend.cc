// Data that is copied once, from the giver's memory to the taker's; see shm_engine.h.
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "ring/shm_engine.h"

namespace dlaunch {
namespace {

// Below, asking the kernel costs more than a second copy.
constexpr std::size_t kLeastLent = 16 << 10;
// The same where ranks outnumber cores, of what goes from one rank to another; above, staging slots
// that stay in the cache are as good.
constexpr std::size_t kLeastLentInTurns = 32 << 10;
constexpr std::size_t kMostLentInTurns = 4 << 20;
// Above, what one rank gives goes faster through the caches of both its core and the taker's.
constexpr std::size_t kMostFromOne = 1 << 20;
// So much at a time: a raised flag is seen in between.
constexpr std::size_t kReadBytes = 4 << 20;
// For the control thread to learn that a rank has ended, after its memory has.
constexpr Duration kNewsOfEnd = std::chrono::seconds(1);

}  // namespace

bool ShmPlane::may_lend(const Shape& shape, const ShmPlan& plan) const {
  const auto& traits = traits_of(shape.collective);
  if (traits.reduces || memory_.pids.empty() || plan.input_bytes < kLeastLent) return false;
  const std::size_t taken = plan.input_bytes / static_cast<std::size_t>(traits.in_parts ? n_ : 1);
  const bool from_one = traits.rooted && !traits.out_at_root;
  if (meet_) {
    // What all take alike comes from the cache when it has been staged, for all but the first.
    const bool alike = !traits.in_parts && !traits.out_at_root;
    if (alike || taken < kLeastLentInTurns || taken > kMostLentInTurns) return false;
  } else if (from_one && taken > kMostFromOne) {
    return false;
  }
  return std::all_of(memory_.ranks, memory_.ranks + n_,
                     [](const ShmRank& r) { return r.reads_all.load(std::memory_order_relaxed); });
}

// Decided by each giver for itself; the takers see it in its entry.
void ShmPlane::lend_input() {
  const std::size_t bytes = own_input();
  lends_ = call_.list == nullptr && bytes > 0 && may_lend(shape_, plan_);
  if (lends_ && (call_.in != readable_ || bytes != readable_bytes_)) {
    lends_ = can_be_read(call_.in, bytes);
    readable_ = lends_ ? call_.in : nullptr;
    readable_bytes_ = bytes;
  }
  const std::uint64_t address = lends_ ? reinterpret_cast<std::uintptr_t>(call_.in) : 0;
  std::memcpy(own().entries[call_.seq % kEntries].payload, &address, sizeof address);
}

// 0: it gives through staging slots. After its entry has been awaited.
std::uint64_t ShmPlane::lent_by(int r) const {
  std::uint64_t address;
  std::memcpy(&address, memory_.ranks[r].entries[call_.seq % kEntries].payload, sizeof address);
  return address;
}

Result<void> ShmPlane::take_lent(int r, const Delivery& d) {
  const std::size_t step = kReadBytes / element_;
  for (std::size_t at = 0; at < d.count; at += step) {
    if (abort_.raised()) return abort_.error();
    const std::size_t count = std::min(step, d.count - at);
    pieces_.clear();
    each_piece(d.to + at, count, [&](const char*, char* to, std::size_t, std::size_t n) {
      pieces_.push_back({to, n * element_});
    });
    const auto read =
        read_process(memory_.pids[static_cast<std::size_t>(r)],
                     lent_by(r) + (d.from + at) * element_, pieces_, count * element_);
    if (read) continue;
    (void)waiter_.wait(memory_.ranks[r].bell, std::min(call_.deadline, steady_now() + kNewsOfEnd),
                       [] { return false; });
    if (abort_.raised()) return abort_.error();
    return Error{.code = Errc::io,
                 .what = fmt::format("{} #{}: read the input of rank {}: {}",
                                     collective_name(call_.collective), users_call(call_).seq,
                                     name_of(r), std::strerror(read.error().os_errno)),
                 .os_errno = read.error().os_errno,
                 .rank = name_of(r)};
  }
  return {};
}

Result<void> ShmPlane::await_takers() {
  for (int r = 0; r < n_; ++r) {
    if (r == rank_ || !delivery(shape_, rank_, r).exists) continue;
    if (auto taken = await(r, &ShmRank::done, base_); !taken) return taken;
  }
  return {};
}

}  // namespace dlaunch
