// Memory of dl_alloc(): a region is a piece of shared memory of each rank, writable by its owner
// and read in place by the others. The regions of a communicator have the same numbers on all its
// ranks, so a rank describes a buffer of its own by number and offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/call/abort_flag.h"
#include "ring/shm/shm_memory.h"

namespace dlaunch {

struct ShmRegion {
  std::vector<std::shared_ptr<void>> ranks;  // by rank, all but the own one read-only
  std::vector<std::size_t> bytes;
};

// Thread-safe: one thread allocates and frees while another one runs collectives.
class ShmRegions {
 public:
  struct Location {
    std::uint32_t region = 0;  // 0: in none
    std::uint64_t offset = 0;
  };

  explicit ShmRegions(int rank) : rank_(static_cast<std::size_t>(rank)) {}

  void add(ShmRegion region);
  void remove(const void* own);  // removes the region that begins there, if any
  bool empty() const;
  // The place of this rank's own memory [begin, begin + bytes), if all of it is in one region.
  Location find(const void* begin, std::size_t bytes) const;
  // The memory of rank r at its place; null if there is no such memory.
  const char* at(Location location, std::size_t r, std::size_t bytes) const;

 private:
  const std::size_t rank_;
  mutable std::mutex mutex_;
  std::uint32_t last_ = 0;
  std::map<std::uint32_t, ShmRegion> regions_;
};

// Passes descriptors among ranks of one host.
class ShmExchange {
 public:
  // Give passes a descriptor to rank r, Take returns the next one from it; an empty one if this
  // process has no room for it. The flag must outlive the object.
  using Give = std::function<Result<void>(std::size_t r, int descriptor, TimePoint deadline)>;
  using Take = std::function<Result<UniqueFd>(std::size_t r, TimePoint deadline)>;
  ShmExchange(int rank, Give give, Take take, AbortFlag& abort);

  // All ranks call it at the same time. bytes[r]: of rank r's segment. Errc::io: this rank cannot
  // get the others' descriptors or map them; any other error: a rank was lost or does not answer.
  Result<ShmRegion> exchange(ShmData own, const std::vector<std::size_t>& bytes,
                             TimePoint deadline);

 private:
  const std::size_t rank_;
  AbortFlag& abort_;
  const Give give_;
  const Take take_;
};

}  // namespace dlaunch
