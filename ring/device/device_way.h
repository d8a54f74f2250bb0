// Which way calls on device memory go, decided by all ranks from the same facts. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ring/call/plane.h"

namespace dlaunch {

// What each rank tells the others before the first of these calls; travels as it lies here.
struct DeviceFacts {
  unsigned char gpu[16] = {};  // its UUID; a MIG instance has its own
  std::int32_t nccl = 0;       // version code; 0: this rank has none, or shall not use it
  char why_not[108] = "";      // with nccl == 0
};

struct DeviceWay {
  bool nccl = false;
  std::string why_not;  // without: "rank 1 and rank 3 share one GPU"
};
// NCCL, if all ranks have it in the same version and a GPU of their own: it refuses others.
DeviceWay choose_device_way(const std::vector<DeviceFacts>& ranks);

// What NCCL does as ring.h says: all but the bitwise ops, which it lacks, and averages of integers,
// of which it does not say how they are rounded.
bool nccl_serves(const Call& call);

// What whoever waits for a GPU sees when it looks.
struct DeviceSight {
  bool done = false;    // the event has passed
  bool over = false;    // the communicator was ended from outside
  bool failed = false;  // NCCL or the driver says so
};
enum class DeviceVerdict { wait, done, over, failed, late };
// A result that is there counts, whatever else has happened; who was lost counts before the error
// that follows from it.
DeviceVerdict judge_device(TimePoint now, TimePoint deadline, const DeviceSight& sight);

// What has stood still until a call's time was up, with all ranks in the call.
enum class Standstill { setup, nccl, own_gpu };
// Where NCCL has, its communicator is beyond repair, and the call can only be made anew in another
// round: Errc::peer_lost, of no rank. If it was NCCL that did not even come together another round
// would hardly be better, nor if it is only this rank's GPU: Errc::timeout.
Error standstill_error(Standstill what, const Call& call, int rank, int ranks, Duration waited);

// How long to sleep before the next look: not at all at first, then an eighth of the time waited,
// and 1 ms at most.
Duration device_pause(Duration waited);

}  // namespace dlaunch
