#include "ring/call/verifier.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/check.h"
#include "ring/kernels/hash.h"

namespace dlaunch {
namespace {

// A verdict names bytes no more closely than by blocks of this size.
constexpr std::size_t kLeastBlock = 4096;
constexpr std::size_t kMostBlocks = 64;
constexpr const char* kChanged =
    "the hashes by which the ranks compare their results have changed on their way";

Error corrupt(std::string what, int rank) {
  return {.code = Errc::corrupt, .what = std::move(what), .rank = rank};
}

std::string ranks_in_words(const RankSet& ranks, std::span<const VerifiedRank> who) {
  const auto of = [&](int rank) -> const VerifiedRank& {
    return who[static_cast<std::size_t>(rank)];
  };
  if (ranks.size() == 1) return of(*ranks.begin()).name;
  RankSet in_job;
  for (const int rank : ranks) in_job.insert(of(rank).in_job);
  return "ranks " + format_rank_set(in_job);
}

// All of these, and not everybody's.
bool on_one_of_the_hosts(const RankSet& ranks, std::span<const VerifiedRank> who) {
  const int host = who[static_cast<std::size_t>(*ranks.begin())].host;
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int r) { return who[static_cast<std::size_t>(r)].host == host; }) &&
         std::any_of(who.begin(), who.end(), [&](const auto& one) { return one.host != host; });
}

}  // namespace

std::size_t HashedBlocks::number() const { return bytes == 0 ? 0 : (bytes + block - 1) / block; }

Part HashedBlocks::place(std::size_t i) const {
  return {i * block, std::min(block, bytes - i * block)};
}

// A pattern of calls that repeats, as that of the steps of a training, must not sample the same
// tensors for ever: so the choice follows a hash of the number.
bool looks_at(VerifyMode mode, std::uint64_t seq) {
  if (mode == VerifyMode::off) return false;
  return mode != VerifyMode::sample || hash_bytes(&seq, sizeof seq) % kSampled == 0;
}

HashedBlocks blocks_of(std::size_t bytes) {
  const std::size_t even = (bytes + kMostBlocks - 1) / kMostBlocks;
  return {.bytes = bytes, .block = (std::max(even, kLeastBlock) + 63) / 64 * 64};
}

Verifier::Verifier(int ranks, const Limits& limits)
    : ranks_(static_cast<std::size_t>(ranks)), limits_(limits) {}

void Verifier::add(const VerifiedData& data, std::span<const std::uint64_t> hashes) {
  DL_ASSERT(hashes.size() == data.blocks.number());
  data_.push_back(data);
  hashes_.insert(hashes_.end(), hashes.begin(), hashes.end());
  ++calls_;
  bytes_ += data.blocks.bytes;
}

VerifyDigest Verifier::digest() const {
  const std::uint64_t hash =
      hash_bytes(hashes_.data(), hashes_.size() * sizeof(std::uint64_t), data_.size());
  return {hash, ~hash};
}

Result<bool> Verifier::agree(std::span<const VerifyDigest> all) const {
  DL_ASSERT(all.size() == ranks_);
  for (const VerifyDigest& digest : all) {
    if (digest.inverse != ~digest.hash) return corrupt(kChanged, -1);
  }
  return std::all_of(all.begin(), all.end(), [&](const auto& d) { return d == all.front(); });
}

std::vector<std::uint64_t> Verifier::details() const {
  std::vector<std::uint64_t> details = hashes_;
  details.push_back(digest().hash);
  return details;
}

// The first call with a difference. Later ones may follow from it.
std::optional<Verifier::Difference> Verifier::first_difference(
    std::span<const std::uint64_t> all) const {
  const std::size_t each = hashes_.size() + 1;
  std::size_t at = 0;
  for (const VerifiedData& data : data_) {
    std::optional<Difference> found;
    for (std::size_t i = 0; i < data.blocks.number(); ++i, ++at) {
      std::map<std::uint64_t, RankSet> holders;
      for (std::size_t r = 0; r < ranks_; ++r) {
        holders[all[r * each + at]].insert(static_cast<int>(r));
      }
      if (holders.size() == 1) continue;
      if (!found) found = Difference{.data = &data, .place = data.blocks.place(i)};
      const Part place = data.blocks.place(i);
      found->place.count = place.first + place.count - found->place.first;
      ++found->blocks;
      const bool majority = std::any_of(holders.begin(), holders.end(), [&](const auto& alike) {
        return 2 * alike.second.size() > ranks_;
      });
      found->majority &= majority;
      for (const auto& [hash, ranks] : holders) {
        if (2 * ranks.size() <= ranks_) found->odd.insert(ranks.begin(), ranks.end());
      }
    }
    if (found) return found;
  }
  return std::nullopt;
}

Error Verifier::verdict(std::span<const std::uint64_t> all,
                        std::span<const VerifiedRank> who) const {
  const std::size_t each = hashes_.size() + 1;
  DL_ASSERT(all.size() == ranks_ * each);
  for (std::size_t r = 0; r < ranks_; ++r) {
    const auto of_rank = all.subspan(r * each, each);
    if (of_rank.back() !=
        hash_bytes(of_rank.data(), (each - 1) * sizeof(std::uint64_t), data_.size())) {
      return corrupt(kChanged, -1);
    }
  }
  const auto found = first_difference(all);
  if (!found) return corrupt(kChanged, -1);
  const VerifiedData& data = *found->data;
  const bool one = found->odd.size() == 1;
  const char* const what = data.of == VerifiedData::Of::values ? "values of all ranks" : "results";
  const std::string ranks = ranks_in_words(found->odd, who);
  std::string text = fmt::format("{} #{}: ", collective_name(data.collective), data.seq);
  if (found->majority) {
    text += fmt::format("{} {} other {} than most ranks", ranks, one ? "holds" : "hold", what);
  } else {
    text += fmt::format("{} hold different {}, and more than half of the ranks hold none of them",
                        ranks, what);
  }
  text += fmt::format(", in {} of the bytes {} to {} of {}",
                      found->blocks == 1 ? "a block" : fmt::format("{} blocks", found->blocks),
                      found->place.first, found->place.first + found->place.count - 1,
                      data.blocks.bytes);
  if (!found->majority) return corrupt(text + ": one of them has corrupt data", -1);
  if (data.passed_on && on_one_of_the_hosts(found->odd, who)) {
    const auto& first = who[static_cast<std::size_t>(*found->odd.begin())];
    text += fmt::format(
        ", and {}: ranks of a host pass these on to each other, so the host of {}, or its "
        "connections, has corrupt data",
        one ? "it is on one host of several" : "they share one host of several", first.name);
    return corrupt(text, -1);
  }
  if (data.passed_on) {
    return corrupt(text + ": as ranks pass these on, another rank may have changed them", -1);
  }
  text += one ? ": it, or its connections, has corrupt data"
              : ": they, or their connections, have corrupt data";
  return corrupt(text, *found->odd.begin());
}

void Verifier::clear() {
  data_.clear();
  hashes_.clear();
  calls_ = bytes_ = 0;
}

}  // namespace dlaunch
