// How to wait for a GPU: look at it until there is a verdict.
#pragma once

#include <poll.h>
#include <sched.h>

#include "base/clock.h"
#include "base/result.h"
#include "ring/call/abort_flag.h"
#include "ring/device/device_choice.h"
#include "ring/device/libraries.h"

namespace dlaunch {

inline void nap(Duration pause) {
  if (pause == Duration::zero()) {
    ::sched_yield();
    return;
  }
  const timespec time{.tv_sec = 0, .tv_nsec = pause.count()};
  ::ppoll(nullptr, 0, &time, nullptr);
}

// Whether the event and the work before it are done.
inline CUresult look_at(CUevent event, DeviceSight& sight) {
  const CUresult queried = cuda_driver()->event_query(event);
  sight.done = queried == CUDA_SUCCESS;
  sight.failed = queried != CUDA_SUCCESS && queried != CUDA_ERROR_NOT_READY;
  return queried;
}

// The result of a wait: a verdict other than `wait`, and the failure if it is `failed`.
struct Watched {
  DeviceVerdict verdict = DeviceVerdict::wait;
  Duration waited{};
  Error failure;
};

// Looks until there is a verdict. look(sight, failure) fills in both. abort: null: nothing outside
// ends the wait.
template <class Look>
Watched watch(TimePoint deadline, const AbortFlag* abort, Look look) {
  const TimePoint begun = steady_now();
  for (TimePoint now = begun;; now = steady_now()) {
    DeviceSight sight{.done = false, .over = abort != nullptr && abort->raised(), .failed = false};
    Watched watched{.verdict = DeviceVerdict::wait, .waited = now - begun, .failure = {}};
    look(sight, watched.failure);
    watched.verdict = judge_device(now, deadline, sight);
    if (watched.verdict != DeviceVerdict::wait) return watched;
    nap(device_pause(now - begun));
  }
}

}  // namespace dlaunch
