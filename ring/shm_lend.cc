// Data that is copied once, from the giver's memory to the taker's; see shm_engine.h.
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "ring/shm_engine.h"

namespace dlaunch {
namespace {

// Below, asking the kernel costs more than a second copy.
constexpr std::size_t kLeastLent = 16 << 10;
// Of memory that is mapped. Below, waiting for all others before anything is reduced costs more
// than the copies, of which a reduce_scatter needs most.
constexpr std::size_t kLeastFromRegion = 16 << 10;
constexpr std::size_t kLeastReducedFromRegion = 128 << 10;
// In place, each line changes hands twice as often as in an exchange, which matters while the
// buffers are in the caches.
constexpr std::size_t kLeastInPlace = 32 << 20;
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

// What moves data is decided by each giver for itself; the takers see it in its entry.
void ShmPlane::lend() {
  Loan loan;
  const bool alone = call_.list == nullptr && own_input() > 0;
  if (alone && regions_ && plan_.input_bytes >= kLeastFromRegion) {
    const auto in = regions_->find(call_.in, own_input());
    const auto out = regions_->find(call_.out, out_count(shape_, rank_, n_) * element_);
    loan = {.in_offset = in.offset, .out_offset = out.offset};
    loan.in_region = in.region;
    loan.out_region = out.region;
  }
  if (alone && loan.in_region == 0 && !traits_of(call_.collective).reduces) lend_by_address(loan);
  lends_ = loan.address != 0 || loan.in_region != 0;
  std::memcpy(own().entries[call_.seq % kEntries].payload, &loan, sizeof loan);
}

void ShmPlane::lend_by_address(Loan& loan) {
  const std::size_t bytes = own_input();
  if (!may_lend(shape_, plan_)) return;
  if (call_.in != readable_ || bytes != readable_bytes_) {
    readable_ = can_be_read(call_.in, bytes) ? call_.in : nullptr;
    readable_bytes_ = bytes;
  }
  loan.address = reinterpret_cast<std::uintptr_t>(readable_);
}

// After its entry has been awaited.
ShmPlane::Loan ShmPlane::loan_of(int r) const {
  Loan loan;
  std::memcpy(&loan, memory_.ranks[r].entries[call_.seq % kEntries].payload, sizeof loan);
  return loan;
}

// Of a reduction, after this rank's own arrival: whether all buffers are read in place, which all
// ranks see alike. Who has none for that does not wait to see others'.
Result<bool> ShmPlane::all_in_regions() {
  const bool results = call_.collective == Collective::all_reduce;
  const bool whole = call_.collective != Collective::reduce_scatter;
  bool in_place = false;
  const auto fits = [&](const Loan& loan) {
    in_place = in_place ||
               (loan.in_region == loan.out_region && loan.in_offset == loan.out_offset && results);
    return loan.in_region != 0 && (!results || loan.out_region != 0);
  };
  if (!fits(loan_of(rank_)) || (whole && plan_.input_bytes < kLeastReducedFromRegion)) return false;
  if (auto there = await_all_entries(); !there) return there.error();
  for (int r = 0; r < n_; ++r) {
    if (!fits(loan_of(r))) return false;
  }
  const bool exchange = plan_.way == ShmPlan::Way::exchange;
  if (exchange && in_place && plan_.input_bytes < kLeastInPlace) return false;
  for (int r = 0; r < n_; ++r) {
    const Loan loan = loan_of(r);
    const auto i = static_cast<std::size_t>(r);
    lent_[i].in = regions_->at({loan.in_region, loan.in_offset}, i, own_input());
    lent_[i].out =
        results ? regions_->at({loan.out_region, loan.out_offset}, i, own_input()) : nullptr;
    if (lent_[i].in == nullptr || (results && lent_[i].out == nullptr)) return not_there(r);
  }
  return true;
}

Error ShmPlane::not_there(int r) const {
  return {.code = Errc::mismatch,
          .what = fmt::format("{} #{}: rank {} gives memory of a dl_alloc() that rank {} has freed",
                              collective_name(call_.collective), users_call(call_).seq, name_of(r),
                              name_of(rank_)),
          .rank = name_of(r)};
}

Result<void> ShmPlane::take_from_region(int r, const Loan& loan, const Delivery& d) {
  const char* const from = regions_
                               ? regions_->at({loan.in_region, loan.in_offset + d.from * element_},
                                              static_cast<std::size_t>(r), d.count * element_)
                               : nullptr;
  if (from == nullptr) return not_there(r);
  write_output(d.to, from, d.count);
  return {};
}

Result<void> ShmPlane::take_lent(int r, const Delivery& d) {
  failpoint("shm.takes_lent");
  const Loan loan = loan_of(r);
  if (loan.in_region != 0) return take_from_region(r, loan, d);
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
                     loan.address + (d.from + at) * element_, pieces_, count * element_);
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

// Those that read this rank's memory. Of a reduction these are all.
Result<void> ShmPlane::await_takers() {
  failpoint("shm.awaits_takers");
  for (int r = 0; r < n_; ++r) {
    if (r == rank_ || (!direct_ && !delivery(shape_, rank_, r).exists)) continue;
    if (auto taken = await(r, &ShmRank::done, base_); !taken) return taken;
  }
  return {};
}

}  // namespace dlaunch
