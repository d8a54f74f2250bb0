// The record of one rank's NCCL operations, in a file that NCCL's profiler plug-in (ring/profiler/)
// maps and that outlives the process, however it ends. The launcher reads it like a flight record
// (base/flight.h), and compares the communicators of all ranks at a hang.
//
// NCCL only enqueues an operation on a GPU's stream: that its call has returned does not say that
// it is complete. The record says what is known. Without kernel events an operation stays
// `enqueued`; with them it is `running` while the GPU's kernel works on it, and then `done`.
//
// The rank writes without locks: a reader accepts a communicator if its two versions are equal.
// Native byte order and layout: writer and reader share one machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/flight.h"
#include "base/ring_names.h"

namespace dlaunch {

inline constexpr int kNcclComms = 64;   // at a time; later ones are not recorded
inline constexpr int kNcclCalls = 128;  // the last collectives of each

// The path of a rank's record in a round.
inline std::string nccl_file(const std::string& round_dir, int rank) {
  return round_dir + "/nccl." + std::to_string(rank);
}

// Whether a collective has one, by its index into kCollectiveNames.
constexpr bool has_root(std::uint8_t what) {
  const auto name = kCollectiveNames[what];
  return name == "broadcast" || name == "reduce" || name == "gather" || name == "scatter";
}

// A collective, as all ranks of its communicator must call it.
struct NcclCall {
  std::uint64_t count = 0;
  std::int32_t root = 0;
  std::uint8_t what = 0;   // index into kCollectiveNames
  std::uint8_t dtype = 0;  // index into kDtypeNames
};
// Whether two ranks may make these calls as one collective.
bool are_same(const NcclCall& a, const NcclCall& b);
// "all_reduce (count 4096, float)"
std::string in_words(const NcclCall& call);

struct alignas(64) NcclCommRecord {
  std::atomic<std::uint64_t> version{0};
  std::uint64_t id = 0;    // the same on all its ranks; 0: unused
  std::int32_t ranks = 0;  // 0: not known
  std::int32_t rank = -1;
  // Numbers of collectives, from 1 on each communicator.
  std::uint64_t enqueued = 0;  // the last one
  std::uint64_t begun = 0;     // the last one whose kernel has begun
  std::uint64_t open = 0;      // the first one that runs; 0: none does
  std::uint64_t last = 0;      // operation here, numbered from 1 in the process
  std::uint8_t kernels = 0;    // 1: `begun` and `open` are known
  std::uint8_t message = 0;    // 1: `last` is a message that is not known to be done
  std::uint8_t destroyed = 0;  // 1: the rank has destroyed the communicator
  char name[37] = {};
  NcclCall calls[kNcclCalls];  // collective i in i % kNcclCalls
  // Changed before the other members, and `version` after them: a copy from front to back in which
  // both are equal is whole.
  std::atomic<std::uint64_t> next_version{0};
};

struct NcclFile {
  FlightFile flight;  // `group` of its records: the low half of a communicator's id; no links
  // One that has been destroyed stays until another one needs its place.
  NcclCommRecord comms[kNcclComms];
};
inline constexpr std::size_t kNcclBytes = sizeof(NcclFile);

// A rank's progress on a communicator, as read from a file or as NCCL's RAS service tells it.
struct NcclProgress {
  std::uint64_t comm = 0;
  std::int32_t ranks = 0, rank = -1;
  std::string name;
  std::uint64_t enqueued = 0, begun = 0, open = 0;  // as NcclCommRecord's
  std::uint64_t last_operation = 0;                 // NcclCommRecord's `last`
  bool kernels = false, message = false, destroyed = false;
  std::vector<NcclCall> last;  // up to `enqueued`, oldest first
  // By NCCL's RAS service, which counts each function by itself:
  std::string function;                 // "AllReduce"; "": `enqueued` counts all collectives
  std::optional<std::uint64_t> others;  // the count of the ranks that it does not name
};
// From the contents of a record file; skips what is being written or senseless.
std::vector<NcclProgress> read_nccl(std::string_view bytes);

// "NCCL communicator tensor_parallel", or its id in place of a name
std::string in_words(const NcclProgress& progress);

// The operations there, oldest first, as read_flight().
std::vector<FlightEntry> read_nccl_flight(std::string_view bytes);

}  // namespace dlaunch
