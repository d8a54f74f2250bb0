// Plane: one way of moving a communicator's data (shared memory, stream sockets). The communicator
// checks arguments, numbers the calls and picks the plane; a plane executes one call at a time on
// the caller's thread. Internal to libdlring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "dlaunch/ring.h"

namespace dlaunch {

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier };

std::string_view collective_name(Collective collective);
std::string_view dtype_name(
    dl_dtype dtype);                 // "float32"; the words of nccl-tests: "float", "half" …
std::string_view op_name(dl_op op);  // "sum"
bool dtype_is_float(dl_dtype dtype);
std::size_t dtype_bytes(dl_dtype dtype);  // 0 for a value outside the enum

// One collective call of one rank, with arguments already checked. Counts as in ring.h.
struct Call {
  Collective collective = Collective::barrier;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  dl_dtype dtype = DL_UINT8;
  dl_op op = DL_SUM;
  int root = -1;          // broadcast only
  std::uint64_t seq = 0;  // number of this collective on the communicator, from 1
  TimePoint deadline = kNever;
};

// What must be equal on every rank for a call to make sense. Planes carry it beside their data so
// that a difference becomes Errc::mismatch naming both ranks instead of a hang or wrong numbers.
struct CallSignature {
  std::uint64_t count = 0;
  std::uint32_t packed = 0;  // collective, dtype, op, root
  std::uint32_t seq = 0;     // low half of Call::seq

  bool operator==(const CallSignature&) const = default;
};
CallSignature signature_of(const Call& call);

// "rank 2 called all_reduce(count 10, float32, sum), rank 0 called broadcast(count 4, int8, root
// 1)"
Error mismatch_error(int rank_a, const CallSignature& a, int rank_b, const CallSignature& b);

// "all_reduce #17 timed out after 30 s: waiting for rank 2, 5; arrived: 0-1, 3-4, 6-7"
Error op_timeout_error(const Call& call, Duration waited, std::string_view missing,
                       std::string_view arrived);

class Plane {
 public:
  virtual ~Plane() = default;
  // Errors are final for the communicator. When the AbortFlag given at construction is raised while
  // waiting, the flag's error is returned within a millisecond.
  virtual Result<void> run(const Call& call) = 0;
  virtual const char* name() const = 0;  // "shm", "tcp"
};

}  // namespace dlaunch
