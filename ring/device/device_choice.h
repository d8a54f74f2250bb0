// Chooses NCCL or the host's memory for calls on device memory; all ranks decide from the same
// facts. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ring/call/plane.h"

namespace dlaunch {

// What each rank sends the others before the first of these calls, as these bytes.
struct DeviceFacts {
  unsigned char gpu[16] = {};  // its UUID; a MIG instance has its own
  std::int32_t nccl = 0;       // version code; 0: this rank has none, or must not use it
  char why_not[108] = "";      // with nccl == 0
};

// Sets `gpu`. nccl_hostid: the variable NCCL_HOSTID, null if it is not set. NCCL takes ranks with
// different values for ranks on different hosts, and refuses a GPU twice only on one host.
void name_gpu(DeviceFacts& facts, const void* uuid, const char* nccl_hostid);

struct DeviceChoice {
  bool nccl = false;
  std::string why_not;  // without: "rank 1 and rank 3 share one GPU"
};
// NCCL, if all ranks have the same version and each has its own GPU: NCCL refuses other cases.
DeviceChoice choose_for_device(const std::vector<DeviceFacts>& ranks);

// Whether NCCL does the call as ring.h says: all but the bitwise ops, which it lacks, and averages
// of integers, because its rounding of them is not documented.
bool nccl_serves(const Call& call);

// What a waiter for a GPU sees when it looks.
struct DeviceSight {
  bool done = false;    // the event has passed
  bool over = false;    // the communicator was ended from outside
  bool failed = false;  // reported by NCCL or the driver
};
enum class DeviceVerdict { wait, done, over, failed, late };
// A finished result always counts; the loss of a rank comes before the errors that follow from it.
DeviceVerdict judge_device(TimePoint now, TimePoint deadline, const DeviceSight& sight);

// The part that stood still until a call's time was up, with all ranks in the call.
enum class Standstill { setup, nccl, own_gpu };
// If NCCL stood still, its communicator is beyond repair, and only another round can repeat the
// call: Errc::peer_lost, of no rank. If NCCL's setup or only this rank's GPU stood still, another
// round would hardly help: Errc::timeout.
Error standstill_error(Standstill what, const Call& call, int rank, int ranks, Duration waited);

// How long to sleep before the next look: such that a wait lasts at most an eighth longer than it
// must, and at most 1 ms. A sleep takes longer than it should, so short waits have none.
Duration device_pause(Duration waited);

}  // namespace dlaunch
