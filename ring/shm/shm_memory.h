// The segments of the shared-memory plane and their layout.
//
// control segment   one, read-write for all ranks: ShmHeader, then a ShmRank per rank; then, where
//                   there are just two, the memory that both write: kSlots exchange slots of each
//                   and 2 * kTransferSlots transfer slots of both, then kSmallSlots small messages
//                   of each
// data segment      one, with a part for each rank, which maps only its own part writable: kSlots
//                   staging slots of `ranks` chunks each, then kSlots result chunks, then, of more
//                   than two ranks, kSmallSlots small messages. Once all have mapped it the memfd
//                   is sealed against further writable mappings
//
// A group that meets on the links of another communicator has only a control segment: after its
// ShmRanks, kSmallSlots small messages of each rank. It stages large calls in borrowed memory
// (host_memory.h), laid out like a rank's part without small messages; two ranks also borrow the
// memory that both write.
//
// All are memfds: no names that could collide or be left behind, no quota of /dev/shm. A segment's
// memory is allocated when the segment is made, so that a shortage is an Error and not a SIGBUS
// later.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/links/contact.h"
#include "ring/plan/shm_plan.h"
#include "ring/shm/shm_plane.h"
#include "ring/shm/shm_wait.h"

namespace dlaunch {

inline constexpr int kSlots = 4;
inline constexpr int kTransferSlots = 2;  // blocks on their way to the other rank
inline constexpr int kEntries = 4;

// A rank's arrival at one collective: after it has seen `seq`, a rank may read the rest. The
// payload of a tiny message travels in the same cache line.
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

// Only its rank writes it, except the bell.
struct ShmRank {
  ShmEntry entries[kEntries];  // call number modulo kEntries
  ShmCounter staged;           // blocks whose input is in the staging slots
  ShmCounter reduced;          // blocks whose result chunk is there
  ShmCounter done;             // blocks that this rank has finished reading
  ShmCounter passed;           // blocks of transfers: given, and taken kTransferSlots before
  ShmCounter parted;           // calls in memory of a pair that this rank has finished
  Bell bell;
  alignas(64) std::atomic<std::uint32_t> life{0};  // of ring/links/death_watch.h
  alignas(64) Contact contact;
};

struct alignas(64) ShmHeader {
  std::uint32_t ranks = 0;
  std::uint32_t rank_bytes = sizeof(ShmRank);  // differs between versions
  std::uint64_t chunk_bytes = 0;               // the largest chunk
  std::uint64_t small_bytes = 0;               // room for a message in one shot
  std::uint64_t exchange_bytes = 0;
  // A barrier if ranks outnumber cores: the last to arrive does the work, the rest sleep.
  alignas(64) std::atomic<std::uint64_t> arrivals{0};
  alignas(64) std::atomic<std::uint64_t> released{0};  // call number << 16 | rank with the result
  Bell bell;
};

// The shape for `ranks` on this machine: all staged data of a block fit the second-level caches.
ShmShape shape_for(int ranks);
// The shape for `ranks` in a group, with `staging_bytes` of staging memory.
ShmShape shape_for_group(int ranks, std::size_t staging_bytes);

// The control segment of a group, zeroed; one rank makes it.
Result<UniqueFd> make_group_control(const ShmShape& shape);

// The system could give that much only by pushing everything else out, if at all.
bool lacks_memory(std::size_t bytes);

// Which ranks write a segment: its maker, or also the rank that gets its descriptor.
enum class ShmWriters { owner, both };
// Memory of one rank. It is mapped writable before the descriptor is sealed, so that no receiver of
// the descriptor can write.
struct ShmData {
  UniqueFd fd;                     // for the peers
  std::shared_ptr<void> writable;  // the owner's mapping
  std::size_t bytes = 0;
};
// A segment of this rank, mapped writable here.
Result<ShmData> make_shm_segment(const char* name, std::size_t bytes,
                                 ShmWriters writers = ShmWriters::owner);
// Maps a segment of another rank.
Result<std::shared_ptr<void>> map_shm_segment(const UniqueFd& fd, std::size_t bytes,
                                              ShmWriters writers = ShmWriters::owner);

// Mappings of one rank. Freed together.
struct ShmMemory {
  ShmShape shape;
  ShmHeader* header = nullptr;
  ShmRank* ranks = nullptr;
  char* own = nullptr;                      // own part of the data segment, writable; null: a group
  std::vector<const char*> data;            // data[r]: rank r's part; empty: a group
  char* own_small = nullptr;                // where small messages begin
  std::vector<const char*> small;           // likewise, small[r]: rank r's
  std::vector<std::shared_ptr<void>> keep;  // unmaps them

  void find_small(int rank);  // but for a group
  // Once all ranks have mapped the data segment: makes the first reads of their parts fast.
  void fault_in() const;
};

// Allocates this rank's part of the data segment. The descriptors are no longer needed afterwards.
Result<ShmMemory> map_shm(int rank, int ranks, const UniqueFd& control, const UniqueFd& data);
// Likewise.
Result<ShmMemory> map_group(int rank, const ShmShape& shape, const UniqueFd& control);

// The plane over existing memory: map_shm's, or in tests one heap for all threads.
std::unique_ptr<Plane> make_shm_plane(int rank, ShmMemory memory, AbortFlag& abort,
                                      const ShmOptions& options);

}  // namespace dlaunch
