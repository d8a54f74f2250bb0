// HostPath: a call on device memory through pinned memory of the host. While one granule is a call
// on the host's plane, the next one comes from the device and the last one goes back to it.
#pragma once

#include <functional>
#include <string>

#include "ring/call/plane.h"
#include "ring/device/device_memory.h"
#include "ring/device/host_granules.h"

namespace dlaunch {

class HostPath {
 public:
  using OnHost = std::function<Result<void>(const Call&)>;
  // Blocks until the event has passed, on behalf of the call.
  using Wait = std::function<Result<void>(const Call&, CUevent)>;
  HostPath(int rank, int size, OnHost on_host, Wait wait)
      : rank_(rank), size_(size), on_host_(std::move(on_host)), wait_(std::move(wait)) {}

  // Call it in the GPU's context. Begins after the present work of `stream`. Even after a failure
  // no copy goes on when it returns: the buffers are the caller's again.
  Result<void> run(const Call& call, CUstream stream);
  // "4 granules".
  static std::string explain(const Call& call, int size);

 private:
  struct Slot {
    PinnedMemory in, out;
    std::size_t in_bytes = 0, out_bytes = 0;
    HostGranule granule;
    DeviceEvent loaded, stored;
    bool storing = false;
  };
  Result<void> open(const HostCut& cut);
  Result<void> load(const Call& call, const HostCut& cut, std::size_t number);
  Result<void> turn(const Call& call, Slot& slot);
  Result<void> pass(const Call& call, const HostCut& cut, CUstream stream);
  void settle();

  const int rank_, size_;
  const OnHost on_host_;
  const Wait wait_;
  DeviceStream down_, up_;
  DeviceEvent begin_;
  Slot slots_[2];
};

}  // namespace dlaunch
