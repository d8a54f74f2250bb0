// NcclComm: one of NCCL's communicators. It never blocks its caller: each function may return while
// NCCL is still at work, and state() says so. Any thread may call it, except begin() and leave(): a
// thread that waits for a call may end the communicator while another one launches a call.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "ring/device/libraries.h"
#include "ring/device/nccl_steps.h"

namespace dlaunch {

// Runs `body` on a new thread. False: it has not returned in time; the thread is left behind.
bool returns_within(Duration limit, std::function<void()> body);

class NcclComm {
 public:
  // Begins to make it, in the current context. state() is ncclInProgress until all ranks have come.
  static Result<std::unique_ptr<NcclComm>> begin(const NcclLibrary& nccl, const ncclUniqueId& id,
                                                 int rank, int size);
  // Calls abort(), unless leave() or abort() was called.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // ncclSuccess, ncclInProgress, or a later error, also that the communicator is over.
  ncclResult_t state() const;
  // The error in NCCL's words: "all_reduce #17: NCCL: remote process exited …".
  Error error(std::string_view activity, ncclResult_t result) const;
  // Launches the steps, except the copies, as one group. Then state() is ncclInProgress until the
  // stream holds them.
  ncclResult_t launch(const std::vector<NcclStep>& steps, const Call& call, CUstream stream);

  // Ends it when no call is under way: it first sends what this rank owes its peers. Falls back to
  // abort() if that takes too long.
  void leave();
  // Ends it and its work on the device, even with calls under way. It is over when this returns;
  // false: NCCL hangs, and 5 s have passed.
  bool abort();

 private:
  NcclComm(const NcclLibrary& nccl, ncclComm_t comm) : nccl_(nccl), comm_(comm) {}
  ncclResult_t launch_one(const NcclStep& step, dl_dtype of, ncclRedOp_t op, CUstream stream);
  ncclResult_t launch_all(const std::vector<NcclStep>& steps, dl_dtype of, ncclRedOp_t op,
                          CUstream stream);

  const NcclLibrary& nccl_;
  mutable std::mutex mutex_;  // no thread may end it while NCCL uses it
  ncclComm_t comm_;           // null: over
};

}  // namespace dlaunch
