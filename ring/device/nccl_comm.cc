#include "ring/device/nccl_comm.h"

#include <poll.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/quiet_thread.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {
namespace {

constexpr Duration kLeavePatience = std::chrono::seconds(2);
constexpr Duration kAbortPatience = std::chrono::seconds(5);

bool accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

}  // namespace

bool returns_within(Duration limit, std::function<void()> body) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool returned = false;
  };
  const auto shared = std::make_shared<Shared>();
  const auto run = [shared, body = std::move(body)] {
    body();
    const std::lock_guard lock(shared->mutex);
    shared->returned = true;
    shared->changed.notify_all();
  };
  auto thread = start_quiet_thread(run);
  if (!thread) return false;
  thread->detach();
  std::unique_lock lock(shared->mutex);
  return shared->changed.wait_for(lock, limit, [&] { return shared->returned; });
}

Result<std::unique_ptr<NcclComm>> NcclComm::begin(const NcclLibrary& nccl, const ncclUniqueId& id,
                                                  int rank, int size) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = nccl.comm_init_rank_config(&comm, size, id, rank, &config);
  std::unique_ptr<NcclComm> made(new NcclComm(nccl, comm));
  if (result == ncclSuccess || result == ncclInProgress) return made;
  return made->error("setting NCCL up", result);
}

NcclComm::~NcclComm() { abort(); }

ncclResult_t NcclComm::state() const {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return ncclInvalidUsage;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

Error NcclComm::error(std::string_view activity, ncclResult_t result) const {
  const bool remote = result == ncclRemoteError || result == ncclSystemError;
  Error error{.code = remote ? Errc::peer_lost : Errc::io,
              .what = fmt::format("{}: NCCL: {}", activity, nccl_.get_error_string(result))};
  const std::lock_guard lock(mutex_);
  const char* const more = comm_ != nullptr ? nccl_.get_last_error(comm_) : nullptr;
  if (more != nullptr && *more != '\0') error.what += fmt::format(" ({})", more);
  return error;
}

ncclResult_t NcclComm::launch_one(const NcclStep& step, dl_dtype of, ncclRedOp_t op,
                                  CUstream stream) {
  const auto dtype = static_cast<ncclDataType_t>(nccl_dtype(of));
  const std::size_t count = step.count * nccl_numbers(of);
  switch (step.kind) {
    case NcclStep::Kind::copy:
      return ncclSuccess;
    case NcclStep::Kind::all_reduce:
      return nccl_.all_reduce(step.in, step.out, count, dtype, op, comm_, stream);
    case NcclStep::Kind::reduce:
      return nccl_.reduce(step.in, step.out, count, dtype, op, step.peer, comm_, stream);
    case NcclStep::Kind::broadcast:
      return nccl_.broadcast(step.in, step.out, count, dtype, step.peer, comm_, stream);
    case NcclStep::Kind::reduce_scatter:
      return nccl_.reduce_scatter(step.in, step.out, count, dtype, op, comm_, stream);
    case NcclStep::Kind::all_gather:
      return nccl_.all_gather(step.in, step.out, count, dtype, comm_, stream);
    case NcclStep::Kind::send:
      return nccl_.send(step.in, count, dtype, step.peer, comm_, stream);
    case NcclStep::Kind::recv:
      return nccl_.recv(step.out, count, dtype, step.peer, comm_, stream);
  }
  return ncclInternalError;
}

ncclResult_t NcclComm::launch_all(const std::vector<NcclStep>& steps, dl_dtype of, ncclRedOp_t op,
                                  CUstream stream) {
  ncclResult_t first = nccl_.group_start();
  for (const NcclStep& step : steps) {
    if (accepted(first)) first = launch_one(step, of, op, stream);
  }
  const ncclResult_t ended = nccl_.group_end();  // also after a failure: groups are per thread
  return accepted(first) ? ended : first;
}

// NCCL has an operation of its own for each factor. It reads the factor now, and needs the
// operation only until the steps are under way.
ncclResult_t NcclComm::launch(const std::vector<NcclStep>& steps, const Call& call,
                              CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return ncclInvalidUsage;
  if (call.op != kPremulSum) {
    return launch_all(steps, call.dtype, static_cast<ncclRedOp_t>(nccl_op(call.op)), stream);
  }
  FactorBytes factor = factor_in(call.dtype, call.program_op->factor);
  ncclRedOp_t op = ncclSum;
  const ncclResult_t made = nccl_.red_op_create_pre_mul_sum(
      &op, factor.data(), static_cast<ncclDataType_t>(nccl_dtype(call.dtype)),
      ncclScalarHostImmediate, comm_);
  if (!accepted(made)) return made;
  const ncclResult_t launched = launch_all(steps, call.dtype, op, stream);
  const ncclResult_t freed = nccl_.red_op_destroy(op, comm_);
  return accepted(launched) && !accepted(freed) ? freed : launched;
}

void NcclComm::leave() {
  if (comm_ == nullptr) return;
  const ncclComm_t comm = comm_;
  const NcclLibrary& nccl = nccl_;
  bool finalized = false;
  // NCCL's own time limits are minutes; polling works because the call does not block.
  const ncclResult_t begun = nccl.comm_finalize(comm);
  const TimePoint end = steady_now() + kLeavePatience;
  if (begun == ncclSuccess || begun == ncclInProgress) {
    ncclResult_t now = state();
    for (; now == ncclInProgress && steady_now() < end; now = state()) ::poll(nullptr, 0, 1);
    finalized = now == ncclSuccess;
  }
  if (!finalized) {
    abort();
    return;
  }
  comm_ = nullptr;
  if (!returns_within(kAbortPatience, [&nccl, comm] { nccl.comm_destroy(comm); })) {
    log_warn("NCCL does not return from ncclCommDestroy: left behind");
  }
}

bool NcclComm::abort() {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    comm = std::exchange(comm_, nullptr);
  }
  if (comm == nullptr) return true;
  const NcclLibrary& nccl = nccl_;
  const bool over = returns_within(kAbortPatience, [&nccl, comm] { nccl.comm_abort(comm); });
  if (!over) log_warn("NCCL does not return from ncclCommAbort: left behind");
  return over;
}

}  // namespace dlaunch
