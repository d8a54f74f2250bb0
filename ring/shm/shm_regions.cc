#include "ring/shm/shm_regions.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/failpoint.h"

namespace dlaunch {

void ShmRegions::add(ShmRegion region) {
  const std::lock_guard lock(mutex_);
  regions_.emplace(++last_, std::move(region));
}

void ShmRegions::remove(const void* own) {
  const std::lock_guard lock(mutex_);
  std::erase_if(regions_,
                [&](const auto& entry) { return entry.second.ranks[rank_].get() == own; });
}

bool ShmRegions::empty() const {
  const std::lock_guard lock(mutex_);
  return regions_.empty();
}

ShmRegions::Location ShmRegions::find(const void* begin, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  for (const auto& [number, region] : regions_) {
    const auto first = reinterpret_cast<std::uintptr_t>(region.ranks[rank_].get());
    const std::size_t size = region.bytes[rank_];
    if (address < first || address - first > size || bytes > size - (address - first)) continue;
    return {.region = number, .offset = address - first};
  }
  return {};
}

const char* ShmRegions::at(Location location, std::size_t r, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(location.region);
  if (found == regions_.end()) return nullptr;
  const ShmRegion& region = found->second;
  if (location.offset > region.bytes[r] || bytes > region.bytes[r] - location.offset)
    return nullptr;
  return static_cast<const char*>(region.ranks[r].get()) + location.offset;
}

ShmExchange::ShmExchange(int rank, Give give, Take take, AbortFlag& abort)
    : rank_(static_cast<std::size_t>(rank)),
      abort_(abort),
      give_(std::move(give)),
      take_(std::move(take)) {}

Result<ShmRegion> ShmExchange::exchange(ShmData own, const std::vector<std::size_t>& bytes,
                                        TimePoint deadline) {
  const auto failed = [&](std::size_t r, Error error) {
    const bool lost = error.code == Errc::peer_lost;
    if (lost ? abort_.told(AbortFlag::kBetterReason) : abort_.raised()) return abort_.error();
    error.what = fmt::format("dl_alloc: rank {}: {}", r, error.what);
    error.rank = static_cast<int>(r);
    return error;
  };
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    if (r == rank_) continue;
    auto sent = give_(r, own.fd.get(), deadline);
    if (!sent) return failed(r, sent.error());
  }
  failpoint("regions.passed");
  ShmRegion region{.ranks = std::vector<std::shared_ptr<void>>(bytes.size()), .bytes = bytes};
  region.ranks[rank_] = std::move(own.writable);
  std::optional<Error> lacking;  // reported after everything has been read
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    if (r == rank_) continue;
    auto got = take_(r, deadline);
    if (!got) return failed(r, got.error());
    if (!*got) {
      lacking = Error{.code = Errc::io, .what = "dl_alloc: no room for more descriptors"};
      continue;
    }
    auto mapped = map_shm_segment(*got, bytes[r]);
    if (!mapped) {
      lacking = Error{.code = Errc::io, .what = "dl_alloc: " + mapped.error().what};
      continue;
    }
    region.ranks[r] = std::move(*mapped);
  }
  if (lacking) return *lacking;
  return region;
}

}  // namespace dlaunch
