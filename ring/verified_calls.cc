// Verified calls (--verify): after a call whose result is equal on all ranks this rank hashes its
// result, and now and then the ranks compare their hashes: ring/call/verifier.h. They compare in
// the thread that carries out the call, by a step of that call. A group compares after each call,
// and the ranks of the world also in a barrier and in dl_verify(), which a commit makes first.
#include <algorithm>
#include <array>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "ring/call/list_packer.h"
#include "ring/call/slices.h"
#include "ring/communicator.h"
#include "ring/kernels/hash.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {

// Memory that counts as one buffer, end to end.
class Pieces {
 public:
  void add(const void* data, std::size_t bytes) {
    if (bytes > 0) pieces_.push_back({static_cast<const std::byte*>(data), bytes});
    bytes_ += bytes;
  }
  std::size_t bytes() const { return bytes_; }
  std::uint64_t hash(Part place) const {
    std::uint64_t hash = 0;
    std::size_t first = 0;
    for (const auto& piece : pieces_) {
      const std::size_t from = std::max(place.first, first);
      const std::size_t to = std::min(place.first + place.count, first + piece.size());
      if (from < to) hash = hash_bytes(piece.data() + (from - first), to - from, hash);
      first += piece.size();
    }
    return hash;
  }

 private:
  std::vector<std::span<const std::byte>> pieces_;
  std::size_t bytes_ = 0;
};

namespace {

// In `full` mode: the values of all ranks that a rank has at once.
constexpr std::size_t kMostValues = 16 << 20;

// The result of a call, if it is equal on all ranks.
std::optional<Pieces> common_result(const Call& call, int rank, int ranks) {
  Pieces result;
  const std::size_t element = dtype_bytes(call.dtype);
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::all_gather:
    case Collective::all_reduce_shards:
    case Collective::compressed_average:
      break;
    default:
      return std::nullopt;
  }
  if (call.within != Within::itself || call.task.device >= 0) return std::nullopt;
  if (call.list == nullptr) {
    result.add(call.out, out_count(shape_of(call, ranks), rank, ranks) * element);
    return result;
  }
  for (std::size_t i = 0, begin = 0; i < call.list->ends.size(); begin = call.list->ends[i++]) {
    result.add(call.list->out[i], (call.list->ends[i] - begin) * element);
  }
  return result;
}

// A step of the call between the ranks' Verifiers.
Call exchange_in(const Call& call, const void* own, void* all, std::size_t words) {
  Call step{.collective = Collective::all_gather,
            .in = own,
            .out = all,
            .count = words,
            .dtype = DL_UINT64};
  make_step(step, call, Within::verify);
  return step;
}

}  // namespace

void Communicator::open_verifier() {
  if (job_.verify == VerifyMode::off || job_.size == 1) return;
  constexpr std::size_t kSamples = 8;  // each stands for many calls
  Verifier::Limits limits;
  if (job_.verify == VerifyMode::sample) limits.calls = kSamples;
  if (is_group()) limits.calls = 1;
  verifier_ = std::make_unique<Verifier>(job_.size, limits);
}

void Communicator::note_data(const Call& call, VerifiedData::Of of, bool passed_on,
                             const Pieces& pieces) {
  const VerifiedData data{.seq = call.seq,
                          .collective = call.collective,
                          .of = of,
                          .passed_on = passed_on,
                          .blocks = blocks_of(pieces.bytes())};
  hashes_.clear();
  for (std::size_t i = 0; i < data.blocks.number(); ++i) {
    hashes_.push_back(pieces.hash(data.blocks.place(i)));
  }
  verifier_->add(data, hashes_);
}

// After a call that went well on this rank; only with a verifier.
Result<void> Communicator::verify(const Call& call) {
  const bool barrier = call.collective == Collective::barrier;
  if (!barrier && !looks_at(job_.verify, call.seq)) return {};
  if (const auto result = common_result(call, job_.rank, job_.size)) {
    const bool passed_on = reduces_everywhere(call)
                               ? call.collective == Collective::broadcast && gathers_by_others(call)
                               : passes_on(call);
    note_data(call, VerifiedData::Of::result, passed_on, *result);
  }
  const bool asked = barrier && verifier_->holds_any();
  return asked || verifier_->due() ? compare_results(call) : Result<void>();
}

Result<void> Communicator::compare_results(const Call& call) {
  const auto n = static_cast<std::size_t>(job_.size);
  const VerifyDigest own = verifier_->digest();
  std::vector<VerifyDigest> digests(n);
  constexpr std::size_t kWords = sizeof(VerifyDigest) / sizeof(std::uint64_t);
  if (auto done = run_step(exchange_in(call, &own, digests.data(), kWords)); !done) return done;
  const auto agree = verifier_->agree(digests);
  if (!agree) return agree.error();
  if (*agree) {
    verifier_->clear();
    return {};
  }
  const std::vector<std::uint64_t> details = verifier_->details();
  std::vector<std::uint64_t> all(n * details.size());
  const Call exchange = exchange_in(call, details.data(), all.data(), details.size());
  if (auto done = run_step(exchange); !done) return done;
  std::vector<VerifiedRank> who;
  for (std::size_t r = 0; r < n; ++r) {
    const int host = r < hosts_.size() ? hosts_[r] : 0;
    who.push_back({who_[r], job_.world_rank(static_cast<int>(r)), host});
  }
  const Error verdict = verifier_->verdict(all, who);
  // No process ends because of it: so nothing else would tell the user.
  if (verdict.rank < 0 && job_.rank == 0 && !job_.agent.empty()) log_warn("{}", verdict.what);
  return verdict;
}

// A rank may have been lost since the last call: where nothing is left to compare, that does not
// matter, and a commit succeeds.
Result<void> Communicator::compare_now() {
  if (!verifier_ || compared_ == seq_) return {};
  auto done = collective({.collective = Collective::barrier, .within = Within::verify});
  if (done) compared_ = seq_;
  return done;
}

// -- Full: no rank relies on another one's sums.

// Not a step of a call on a GPU's memory, whose result the ranks do not compare.
bool Communicator::reduces_everywhere(const Call& call) const {
  return verifier_ && job_.verify == VerifyMode::full && call.task.device < 0 &&
         call.step_of == nullptr && call.count > 0 &&
         (call.collective == Collective::all_reduce || gathers_broadcast(call));
}

// Ranks would pass a broadcast on.
bool Communicator::gathers_broadcast(const Call& call) const {
  return call.collective == Collective::broadcast && plane_->passes_on(call);
}

Result<void> Communicator::run_everywhere(const Call& call) {
  if (call.list != nullptr) {
    return packer_.run(call, [this](const Call& packed) { return run_everywhere(packed); });
  }
  if (gathers_broadcast(call)) return broadcast_directly(call);
  const std::size_t element = dtype_bytes(call.dtype);
  const std::size_t most =
      std::max<std::size_t>(1, kMostValues / element / static_cast<std::size_t>(job_.size));
  for (std::size_t first = 0; first < call.count; first += most) {
    Call slice = call;
    slice.in = static_cast<const std::byte*>(call.in) + first * element;
    slice.out = static_cast<std::byte*>(call.out) + first * element;
    slice.count = std::min(most, call.count - first);
    if (auto done = gather_in_order(slice); !done) return done;
    const std::size_t bytes = slice.count * element;
    failpoint_data("verified.reduced_data", slice.out, bytes);
    Pieces values;
    values.add(step_memory_.data(), bytes * static_cast<std::size_t>(job_.size));
    note_data(call, VerifiedData::Of::values, gathers_by_others(slice), values);
  }
  return {};
}

// In the last step of a composed call each rank gives all ranks its part of the result, or all its
// values.
bool Communicator::passes_on(const Call& call) const {
  return composes(call) ? gathers_by_others(call) : plane_->passes_on(call);
}

std::vector<std::size_t> Communicator::counts_of_root(const Call& call) const {
  std::vector<std::size_t> counts(static_cast<std::size_t>(job_.size));
  counts[static_cast<std::size_t>(call.root)] = call.count;
  return counts;
}

bool Communicator::gathers_by_others(const Call& call) const {
  Call gather = call;
  gather.collective = Collective::all_gather;
  std::vector<std::size_t> counts;
  if (call.collective == Collective::broadcast) {
    counts = counts_of_root(call);
    gather.counts = counts.data();
  }
  return plane_->passes_on(gather);
}

// From the root to each rank: an all_gather to which only the root gives something.
Result<void> Communicator::broadcast_directly(const Call& call) {
  const std::vector<std::size_t> counts = counts_of_root(call);
  Call gather = call;
  gather.collective = Collective::all_gather;
  gather.counts = counts.data();
  gather.count = counts[static_cast<std::size_t>(job_.rank)];
  gather.root = -1;
  gather.within = Within::verify;
  return run_step(gather);
}

}  // namespace dlaunch
