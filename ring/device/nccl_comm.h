// NcclComm: one of NCCL's communicators, which never blocks its caller: each function returns while
// NCCL may still be at it, and state() says so. Any thread, but for begin() and leave(): who waits
// for a call may end it while another one is launched.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "ring/device/libraries.h"
#include "ring/device/nccl_steps.h"

namespace dlaunch {

// Runs `body` on a thread of its own. false: it has not returned in time, and is left behind.
bool returns_within(Duration limit, std::function<void()> body);

class NcclComm {
 public:
  // Begins to make it, in the current context. state() then is ncclInProgress until all have come.
  static Result<std::unique_ptr<NcclComm>> begin(const NcclLibrary& nccl, const ncclUniqueId& id,
                                                 int rank, int size);
  // abort(), unless leave() or abort() was called.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // ncclSuccess, ncclInProgress, or what has gone wrong since: also that it is over.
  ncclResult_t state() const;
  // What went wrong, in NCCL's words: "all_reduce #17: NCCL: remote process exited …".
  Error error(std::string_view activity, ncclResult_t result) const;
  // Launches the steps as one group, but for the copies. Then state() is ncclInProgress until the
  // stream holds them.
  ncclResult_t launch(const std::vector<NcclStep>& steps, const Call& call, CUstream stream);

  // Ends it with nothing under way: what this rank still has to give its peers is given. Falls back
  // to abort() if that takes too long.
  void leave();
  // Ends it with whatever is under way; the device's work ends with it. It is over when this
  // returns, unless NCCL hangs in it: then false, after 5 s.
  bool abort();

 private:
  NcclComm(const NcclLibrary& nccl, ncclComm_t comm) : nccl_(nccl), comm_(comm) {}
  ncclResult_t launch_one(const NcclStep& step, const Call& call, CUstream stream);

  const NcclLibrary& nccl_;
  mutable std::mutex mutex_;  // while NCCL uses it nobody may end it
  ncclComm_t comm_;           // null: over
};

}  // namespace dlaunch
