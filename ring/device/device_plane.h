// Device plane: collectives on GPU memory. NCCL moves the data if it can; otherwise (ranks that
// share a GPU, no NCCL, ops that it lacks) they go through pinned memory of the host and the host's
// planes.
//
// The first call on device memory makes NCCL's communicator. The facts that its ranks exchange for
// it, the unique id included, travel on this communicator's own plane. Those connections are
// authenticated and belong to one round, so an id of another round cannot turn up, and groups need
// no keys of their own in the store.
//
// The thread that waits for the GPU watches over it: NCCL's asynchronous errors, the abort flag and
// the deadline end the wait, and NCCL's communicator with it. A separate thread ends that
// communicator, and is left behind if NCCL does not return: no call hangs in an abort. The other
// ranks get the cause first, so that they know it when they see its consequences.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "ring/call/abort_flag.h"
#include "ring/call/plane.h"

namespace dlaunch {

// "" if this library was built with the headers of CUDA and NCCL, else a sentence that says it was
// not.
std::string_view device_support_missing();

// CUDA's number of the GPU that holds this memory; -1: host memory, or no driver.
int device_of(const void* memory);

struct DeviceSettings {
  int rank = 0;
  int size = 1;
  bool use_nccl = true;
  Duration init_timeout = std::chrono::seconds(600);  // for NCCL's communicator
  // Runs a step of a call on the host's plane.
  std::function<Result<void>(const Call& step)> on_host;
  // For a call whose time is up: the error that names the missing ranks; none: all have come.
  std::function<std::optional<Error>(const Call& call, Duration waited)> absent;
  // Ends the communicator and notifies its other ranks. Returns the error that counts: the first.
  std::function<Error(const Error& error)> ended;
};

class DevicePlane : public Plane {
 public:
  // Fills in `task` of a call on device memory: it begins after the present work of `stream` (a
  // CUstream). at_once: run() follows on this thread, with nothing in between.
  virtual Result<void> attach(Call& call, int device, void* stream, bool at_once) = 0;
  // As run(), at once, but if NCCL moves the data, or no data move between ranks, it returns when
  // the stream has the call. A StreamWatch then waits for the call and invokes `ended` when it is
  // done or has failed, unless put() itself fails. The call's time begins when its stream reaches
  // it.
  virtual Result<void> put(const Call& call, std::function<void(bool failed)> ended) = 0;
  // Waits until all put() calls are done or have failed. False: some have failed.
  virtual bool settle() = 0;

  // Pinned memory for messages. Messages always go through the host, so that tags, kAnySource and
  // peers with other kinds of buffers work as ever. May run beside a run() on another thread.
  virtual Result<std::shared_ptr<void>> stage(int device, std::size_t bytes) = 0;
  // Copies between memory of the device and such memory, after the present work of `stream`;
  // returns when the copy is done.
  enum class To { host, device };
  virtual Result<void> copy(void* to, const void* from, std::size_t bytes, To where, void* stream,
                            TimePoint deadline) = 0;
};

// Null if device_support_missing(). The flag must outlive the plane.
std::unique_ptr<DevicePlane> make_device_plane(DeviceSettings settings, AbortFlag& abort);

}  // namespace dlaunch
