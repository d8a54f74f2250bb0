// The segments of the shared-memory plane and where things stand in them.
//
// control segment   one, read-write for all ranks: ShmHeader, then a ShmRank per rank; then, where
//                   there are just two, the memory that both write: kSlots exchange slots of each
//                   and 2 * kTransferSlots transfer slots of both
// data segment      one per rank, writable only by its owner (memfd sealed against future writable
//                   mappings): kSlots staging slots of `ranks` chunks each, then kSlots result
//                   chunks, then kSmallSlots small messages
//
// A group that meets on the links of another communicator has a control segment alone: behind its
// ShmRanks, kSmallSlots small messages of each rank. It stages large calls in borrowed memory
// (host_memory.h), laid out like a data segment without small messages; two ranks borrow what both
// write, too.
//
// All are memfds: no names that could collide or be left behind, no quota of /dev/shm. Memory is
// allocated when a segment is made, so that a shortage is an Error and not a SIGBUS later.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/plan/shm_plan.h"
#include "ring/shm/shm_plane.h"
#include "ring/shm/shm_wait.h"

namespace dlaunch {

inline constexpr int kSlots = 4;
inline constexpr int kTransferSlots = 2;  // blocks of a rank on their way to the other
inline constexpr int kEntries = 4;

// A rank's arrival at one collective: who reads `seq` may read the rest. The payload of a tiny
// message travels in the same cache line.
struct alignas(64) ShmEntry {
  std::atomic<std::uint32_t> seq{0};  // low half of the call's number
  std::uint32_t packed = 0;           // CallSignature's
  std::uint64_t count = 0;
  char payload[kInlineBytes] = {};
};
static_assert(sizeof(ShmEntry) == 64);

struct alignas(64) ShmCounter {
  std::atomic<std::uint64_t> blocks{0};
};

// Written by its rank alone, but for the bell.
struct ShmRank {
  ShmEntry entries[kEntries];  // call number modulo kEntries
  ShmCounter staged;           // blocks whose input is in the staging slots
  ShmCounter reduced;          // blocks whose result chunk is there
  ShmCounter done;             // blocks of which nothing will be read any more
  ShmCounter passed;           // blocks of transfers: given, and taken kTransferSlots before
  ShmCounter parted;           // calls in memory of a pair that this rank is done with
  Bell bell;
  alignas(64) std::atomic<std::uint32_t> life{0};  // of ring/links/death_watch.h
};

struct alignas(64) ShmHeader {
  std::uint32_t ranks = 0;
  std::uint32_t rank_bytes = sizeof(ShmRank);  // differs between versions
  std::uint64_t chunk_bytes = 0;               // the largest chunk
  std::uint64_t small_bytes = 0;               // room of a message in one shot
  std::uint64_t exchange_bytes = 0;
  // Meeting point where ranks outnumber cores: the last to arrive does the work, the rest sleep.
  alignas(64) std::atomic<std::uint64_t> arrivals{0};
  alignas(64) std::atomic<std::uint64_t> released{0};  // call number << 16 | rank with the result
  Bell bell;
};

// The shape for so many ranks on this machine: chunks that let all staged data of a block stay in
// the second-level caches.
ShmShape shape_for(int ranks);
// For so many ranks in a group, with staging memory of so many bytes.
ShmShape shape_for_group(int ranks, std::size_t staging_bytes);

// The control segment of a group, zeroed; one rank makes it.
Result<UniqueFd> make_group_control(const ShmShape& shape);

// So much can only be had by pushing everything else out, if at all.
bool lacks_memory(std::size_t bytes);

// Who writes a segment: the rank that made it, or also the one that it is passed to.
enum class ShmWriters { owner, both };
// A segment of so many bytes of this rank, mapped writable here.
Result<ShmData> make_shm_segment(const char* name, std::size_t bytes,
                                 ShmWriters writers = ShmWriters::owner);
// Another rank's.
Result<std::shared_ptr<void>> map_shm_segment(const UniqueFd& fd, std::size_t bytes,
                                              ShmWriters writers = ShmWriters::owner);

// Mappings of one rank. Freed together.
struct ShmMemory {
  ShmShape shape;
  ShmHeader* header = nullptr;
  ShmRank* ranks = nullptr;
  char* own = nullptr;                      // own data segment, writable; null: a group
  std::vector<const char*> data;            // data[r]: rank r's segment; empty: a group
  char* own_small = nullptr;                // where small messages begin
  std::vector<const char*> small;           // likewise, small[r]: rank r's
  std::vector<std::shared_ptr<void>> keep;  // what unmaps them

  void find_small();  // in the data segments
};

// peer_data[r] is rank r's data segment; peer_data[rank] is ignored (own is used).
Result<ShmMemory> map_shm(int rank, int ranks, const UniqueFd& control, ShmData own,
                          const std::vector<UniqueFd>& peer_data);

// The segment's descriptor is needed no more afterwards.
Result<ShmMemory> map_group(int rank, const ShmShape& shape, const UniqueFd& control);

// The plane over memory that is there already: map_shm's, or in tests one heap for all threads.
std::unique_ptr<Plane> make_shm_plane(int rank, ShmMemory memory, AbortFlag& abort,
                                      const ShmOptions& options);

}  // namespace dlaunch
