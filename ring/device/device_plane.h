// Device plane: collectives on GPU memory. NCCL moves it where it can; elsewhere (ranks that share
// a GPU, no NCCL, ops that it lacks) it goes through pinned memory of the host and the planes
// there.
//
// NCCL's communicator is made by the first call on device memory. What its ranks need to know of
// each other for it, the unique id included, travels on this communicator's own plane: those
// connections are authenticated and belong to one round, so that an id of another cannot turn up,
// and groups need no keys of their own in the store.
//
// Whoever waits for the GPU watches over it: NCCL's asynchronous errors, the abort flag and the
// deadline end the wait, and NCCL's communicator with it. That takes place on a thread of its own,
// which is left behind if NCCL does not return from it: no call hangs in an abort. The others are
// told before, so that they know the cause when they see what follows from it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "ring/call/abort_flag.h"
#include "ring/call/plane.h"

namespace dlaunch {

// "" if this library was built with the headers of CUDA and NCCL, else a sentence that it was not.
std::string_view device_support_missing();

// CUDA's number of the GPU that this memory is on; -1: it is the host's, or there is no driver.
int device_of(const void* memory);

struct DeviceSettings {
  int rank = 0;
  int size = 1;
  bool use_nccl = true;
  Duration init_timeout = std::chrono::seconds(600);  // for NCCL's communicator
  // Runs a step of a call on the host's plane.
  std::function<Result<void>(const Call& step)> on_host;
  // Of a call whose time is up: the error that names who has not come to it; none: all have.
  std::function<std::optional<Error>(const Call& call, Duration waited)> absent;
  // The communicator is over, and its other ranks are told. Returns the error that counts: the
  // first.
  std::function<Error(const Error& error)> ended;
};

class DevicePlane : public Plane {
 public:
  // Fills in `task` of a call on device memory: it begins after what `stream` (a CUstream) holds
  // now. at_once: run() follows on this thread, with nothing in between.
  virtual Result<void> attach(Call& call, int device, void* stream, bool at_once) = 0;
  // As run(), at once, but where NCCL moves the data, or nothing needs to be moved between ranks,
  // it returns when the stream has the call. Somebody else waits for it then: `ended` comes when it
  // is done or has failed, unless this fails. The call's time begins when its stream comes to it.
  virtual Result<void> put(const Call& call, std::function<void(bool failed)> ended) = 0;
  // Until all that was put is done or has failed. False: some of it has failed.
  virtual bool settle() = 0;

  // For messages, which go by the host whatever their buffers are, so that tags, any source and a
  // peer with its buffer elsewhere are as ever. Beside a run() on another thread.
  // Pinned memory.
  virtual Result<std::shared_ptr<void>> stage(int device, std::size_t bytes) = 0;
  // Copies between memory of the device and such memory, after what `stream` holds; returns when it
  // is done.
  enum class To { host, device };
  virtual Result<void> copy(void* to, const void* from, std::size_t bytes, To where, void* stream,
                            TimePoint deadline) = 0;
};

// Null where device_support_missing(). The flag must outlive the plane.
std::unique_ptr<DevicePlane> make_device_plane(DeviceSettings settings, AbortFlag& abort);

}  // namespace dlaunch
