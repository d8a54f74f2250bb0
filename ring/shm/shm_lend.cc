// Data that is copied once, from the giver's memory to the taker's; see shm_engine.h.
#include <cstring>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "ring/shm/shm_engine.h"

namespace dlaunch {
namespace {

// For less data, waiting for all others before the reduction costs more than the copies. A
// reduce_scatter copies the most.
constexpr std::size_t kLeastFromRegion = 16 << 10;
constexpr std::size_t kLeastReducedFromRegion = 128 << 10;

}  // namespace

// For moves each giver decides by itself; the takers see it in its entry.
void ShmPlane::lend() {
  Loan loan;
  if (call_.list == nullptr && own_input() > 0 && regions_ &&
      plan_.input_bytes >= kLeastFromRegion) {
    const auto in = regions_->find(call_.in, own_input());
    const auto out = regions_->find(call_.out, out_count(*shape_, rank_, n_) * element_);
    loan = {.in_offset = in.offset,
            .out_offset = out.offset,
            .in_region = in.region,
            .out_region = out.region};
  }
  loan.staging = static_cast<std::uint32_t>(staging_number_);
  loan.pair = static_cast<std::uint32_t>(pair_number_);
  lends_ = loan.in_region != 0;
  std::memcpy(own().entries[call_.seq % kEntries].payload, &loan, sizeof loan);
}

// Call it after waiting for rank r's entry.
ShmPlane::Loan ShmPlane::loan_of(int r) const {
  Loan loan;
  std::memcpy(&loan, memory_.ranks[r].entries[call_.seq % kEntries].payload, sizeof loan);
  return loan;
}

// In a reduction, after this rank's own arrival: whether all buffers are read in place; all ranks
// get the same answer. A rank without such buffers does not wait to see the others'.
Result<bool> ShmPlane::all_in_regions() {
  const bool results = call_.collective == Collective::all_reduce;
  const bool whole = call_.collective != Collective::reduce_scatter;
  const bool exchange = plan_.algorithm == ShmPlan::Algorithm::exchange;
  const auto fits = [&](const Loan& loan) {
    if (loan.in_region == 0) return false;
    if (!results) return true;
    const bool in_place = loan.in_region == loan.out_region && loan.in_offset == loan.out_offset;
    // In place, each line would change hands twice as often as in an exchange.
    return loan.out_region != 0 && !(exchange && in_place);
  };
  if (!fits(loan_of(rank_)) || (whole && plan_.input_bytes < kLeastReducedFromRegion)) return false;
  if (auto there = await_all_entries(); !there) return there.error();
  for (int r = 0; r < n_; ++r) {
    if (!fits(loan_of(r))) return false;
  }
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

Result<void> ShmPlane::take_lent(int r, const Loan& loan, const Delivery& d) {
  failpoint("shm.takes_lent");
  const char* const from = regions_
                               ? regions_->at({loan.in_region, loan.in_offset + d.from * element_},
                                              static_cast<std::size_t>(r), d.count * element_)
                               : nullptr;
  if (from == nullptr) return not_there(r);
  write_output(d.to, from, d.count);
  return {};
}

// Waits for the ranks that read this rank's memory. In a reduction these are all.
Result<void> ShmPlane::await_takers() {
  failpoint("shm.awaits_takers");
  for (int r = 0; r < n_; ++r) {
    if (r == rank_ || (!direct_ && !delivery(*shape_, rank_, r).exists)) continue;
    if (auto taken = await(r, &ShmRank::done, base_); !taken) return taken;
  }
  return {};
}

}  // namespace dlaunch
