#include "ring/device/device_plane.h"

#include <poll.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "ring/device/device_choice.h"
#include "ring/device/device_memory.h"
#include "ring/device/device_wait.h"
#include "ring/device/host_path.h"
#include "ring/device/nccl_comm.h"
#include "ring/device/pinned_pool.h"
#include "ring/device/stream_watch.h"
#include "ring/stream/stream_errors.h"

namespace dlaunch {
namespace {

constexpr int kCauseMs = 100;  // as in ring/stream/socket_group.cc

std::string nccl_version_text(int code) {
  return fmt::format("NCCL {}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

class CudaPlane final : public DevicePlane {
 public:
  CudaPlane(DeviceSettings settings, AbortFlag& abort)
      : settings_(std::move(settings)), abort_(abort) {}
  ~CudaPlane() override;

  const char* name() const override {
    if (!choice_) return "";
    return choice_->nccl ? "nccl" : "host";
  }
  Result<void> attach(Call& call, int device, void* stream, bool at_once) override;
  Result<std::shared_ptr<void>> stage(int device, std::size_t bytes) override;
  Result<void> copy(void* to, const void* from, std::size_t bytes, To where, void* stream,
                    TimePoint deadline) override;
  Result<void> run(const Call& call) override;
  Result<void> put(const Call& call, std::function<void(bool failed)> ended) override;
  bool settle() override;
  std::string explain(const Call& call) const override;

 private:
  Result<void> open(int device);
  Result<void> begin(const Call& call);
  Result<void> agree(const Call& call);
  DeviceFacts own_facts() const;
  Result<void> make_comm(const Call& call, const ncclUniqueId& id);
  bool moves_here(const Call& call) const;
  Result<void> run_by_host(const Call& call, CUstream stream);
  Result<void> launch_here(const Call& call, CUstream stream);
  Result<void> end(const Call& call, const Watched& watched);
  Error cause(const Call& call, const Watched& watched) const;
  Error lateness(const Call& call, Duration waited) const;
  Result<void> await_nccl(const Call& call, TimePoint deadline);
  Result<void> await_event(const Call& call, CUevent event);
  Result<void> await_put(const StreamWatch::Watched& put);

  const DeviceSettings settings_;
  AbortFlag& abort_;
  std::mutex opening_;  // attach() may come while another thread runs a call
  std::unique_ptr<DeviceContext> context_;
  int device_ = -1;
  DeviceStream own_;
  DeviceEvent passed_;
  std::optional<DeviceChoice> choice_;
  int version_ = 0;
  std::unique_ptr<NcclComm> comm_;
  std::unique_ptr<HostPath> host_;
  std::shared_ptr<PinnedPool> for_messages_;
  CUstream put_in_ = nullptr;           // the stream of watch_'s calls
  std::unique_ptr<StreamWatch> watch_;  // null: no put() yet
};

CudaPlane::~CudaPlane() {
  if (!context_) return;
  const CurrentContext current(context_->get());
  watch_.reset();
  if (comm_ && !abort_.raised()) comm_->leave();
  comm_.reset();
  host_.reset();
  passed_.reset();
  own_.reset();
}

// -- Calls

Result<void> CudaPlane::open(int device) {
  const std::lock_guard lock(opening_);
  if (context_ && device == device_) return {};
  if (context_) {
    return Error{.code = Errc::usage,
                 .what = fmt::format("this communicator works on GPU {}: the buffer is on GPU {}",
                                     device_, device)};
  }
  auto context = DeviceContext::retain(device);
  if (!context) return context.error();
  const CurrentContext current((*context)->get());
  if (auto ok = current.made(); !ok) return ok;
  auto stream = make_device_stream();
  if (!stream) return stream.error();
  auto event = make_device_event();
  if (!event) return event.error();
  auto pool = PinnedPool::make(device);
  if (!pool) return pool.error();
  own_ = std::move(*stream);
  passed_ = std::move(*event);
  for_messages_ = std::move(*pool);
  device_ = device;
  context_ = std::move(*context);
  return {};
}

Result<void> CudaPlane::attach(Call& call, int device, void* stream, bool at_once) {
  if (auto ok = open(device); !ok) return ok;
  call.task = {.device = device, .stream = stream, .after = nullptr};
  if (at_once) return {};
  const CurrentContext current(context_->get());
  if (auto ok = current.made(); !ok) return ok;
  auto event = make_device_event();
  if (!event) return event.error();
  if (auto ok = record(*event, static_cast<CUstream>(stream)); !ok) return ok;
  call.task.after = event->release();
  return {};
}

// Prepares the call.
Result<void> CudaPlane::begin(const Call& call) {
  if (abort_.raised()) return abort_.error();
  return choice_ || settings_.size == 1 ? Result<void>() : agree(call);
}

bool CudaPlane::moves_here(const Call& call) const {
  if (settings_.size == 1) return call.op != kPremulSum;
  return choice_->nccl && nccl_serves(call);
}

Result<void> CudaPlane::run(const Call& call) {
  const CurrentContext current(context_->get());
  if (auto ok = current.made(); !ok) return ok;
  const DeviceEvent after(static_cast<CUevent>(call.task.after));
  if (auto ok = begin(call); !ok) return ok;
  CUstream stream = static_cast<CUstream>(call.task.stream);
  if (after) {
    const CUresult waits = cuda_driver()->stream_wait_event(own_.get(), after.get(), 0);
    if (waits != CUDA_SUCCESS) return cuda_error("cuStreamWaitEvent", waits);
    stream = own_.get();
  }
  if (!moves_here(call)) return run_by_host(call, stream);
  if (auto ok = launch_here(call, stream); !ok) return ok;
  if (auto ok = record(passed_, stream); !ok) return ok;
  return await_event(call, passed_.get());
}

Result<void> CudaPlane::put(const Call& call, std::function<void(bool failed)> ended) {
  const Duration limit = call.deadline - steady_now();
  const CurrentContext current(context_->get());
  if (auto ok = current.made(); !ok) return ok;
  if (auto ok = begin(call); !ok) return ok;
  const auto stream = static_cast<CUstream>(call.task.stream);
  if (!moves_here(call)) {
    auto done = run_by_host(call, stream);
    if (done) ended(false);
    return done;
  }
  if (!watch_) {
    watch_ = std::make_unique<StreamWatch>(
        context_->get(), [this](const StreamWatch::Watched& put) { return await_put(put); });
  }
  // NCCL runs one call after the other, and streams do not wait for each other.
  if (std::exchange(put_in_, stream) != stream) (void)watch_->settle();
  auto events = watch_->events();
  if (!events) return events.error();
  if (auto ok = record(events->begun, stream); !ok) return ok;
  if (auto ok = launch_here(call, stream); !ok) return ok;
  if (auto ok = record(events->passed, stream); !ok) return ok;
  StreamWatch::Watched put{
      .call = call, .limit = limit, .events = std::move(*events), .ended = std::move(ended)};
  put.call.counts = nullptr;
  put.call.splits = nullptr;
  put.call.list = nullptr;
  return watch_->add(std::move(put));
}

bool CudaPlane::settle() { return !watch_ || watch_->settle(); }

Result<void> CudaPlane::run_by_host(const Call& call, CUstream stream) {
  if (!host_) {
    const auto wait = [this](const Call& of, CUevent event) { return await_event(of, event); };
    host_ = std::make_unique<HostPath>(settings_.rank, settings_.size, settings_.on_host, wait);
  }
  return host_->run(call, stream);
}

// By NCCL, or by copies alone in a world of one. Returns when the stream has them.
Result<void> CudaPlane::launch_here(const Call& call, CUstream stream) {
  const auto steps = nccl_steps(call, settings_.rank, settings_.size);
  bool alone = true;
  for (const NcclStep& step : steps) {
    if (step.kind != NcclStep::Kind::copy) {
      alone = false;
      continue;
    }
    const CUresult copied = cuda_driver()->copy_on_device(
        reinterpret_cast<CUdeviceptr>(step.out), reinterpret_cast<CUdeviceptr>(step.in),
        step.count * dtype_bytes(call.dtype), stream);
    if (copied != CUDA_SUCCESS) return cuda_error("cuMemcpyDtoDAsync", copied);
  }
  if (alone) return {};
  const ncclResult_t launched = comm_->launch(steps, call, stream);
  if (launched != ncclSuccess && launched != ncclInProgress) {
    return end(call, {DeviceVerdict::failed, {}, comm_->error(activity_of(call), launched)});
  }
  // NCCL requires this before anything waits for the stream.
  return await_nccl(call, call.deadline);
}

std::string CudaPlane::explain(const Call& call) const {
  if (settings_.size == 1) return "a single rank: a copy on the GPU";
  if (!choice_) return "on a GPU: the first call decides how";
  if (choice_->nccl && nccl_serves(call)) return nccl_version_text(version_);
  return fmt::format("through the host's memory, because {}; {}",
                     choice_->nccl ? "NCCL lacks this op" : choice_->why_not,
                     HostPath::explain(call, settings_.size));
}

// -- Messages

Result<std::shared_ptr<void>> CudaPlane::stage(int device, std::size_t bytes) {
  if (auto ok = open(device); !ok) return ok.error();
  return for_messages_->take(bytes);
}

Result<void> CudaPlane::copy(void* to, const void* from, std::size_t bytes, To where, void* given,
                             TimePoint deadline) {
  const CurrentContext current(context_->get());
  if (auto ok = current.made(); !ok) return ok;
  const auto event = make_device_event();
  if (!event) return event.error();
  const CudaDriver& cuda = *cuda_driver();
  const auto stream = static_cast<CUstream>(given);
  auto ok =
      where == To::host
          ? cuda_done("cuMemcpyDtoHAsync",
                      cuda.copy_to_host(to, reinterpret_cast<CUdeviceptr>(from), bytes, stream))
          : cuda_done("cuMemcpyHtoDAsync",
                      cuda.copy_to_device(reinterpret_cast<CUdeviceptr>(to), from, bytes, stream));
  if (ok) ok = record(*event, stream);
  if (!ok) return ok;
  const Watched watched = watch(deadline, &abort_, [&](DeviceSight& sight, Error& failure) {
    const CUresult queried = look_at(event->get(), sight);
    if (sight.failed) failure = cuda_error("copy of a message", queried);
  });
  if (watched.verdict == DeviceVerdict::done) return {};
  for_messages_->leave_behind();
  if (watched.verdict == DeviceVerdict::over) return abort_.error();
  if (watched.verdict == DeviceVerdict::failed) return watched.failure;
  return Error{
      .code = Errc::timeout,
      .what = fmt::format("copy of a message timed out after {}: the GPU makes no progress with it",
                          format_duration(watched.waited))};
}

// -- The other ranks

DeviceFacts CudaPlane::own_facts() const {
  DeviceFacts facts;
  CUuuid uuid{};
  cuda_driver()->device_get_uuid(&uuid, context_->device());
  name_gpu(facts, uuid.bytes, std::getenv("NCCL_HOSTID"));
  const auto nccl = nccl_library();
  std::string why_not;
  int version = 0;
  if (!settings_.use_nccl) {
    why_not = "the backend is set to cpu";
  } else if (!nccl) {
    why_not = nccl.error().what;
  } else if ((*nccl)->get_version(&version) != ncclSuccess || version <= 0) {
    why_not = "NCCL does not say its version";
  }
  if (why_not.empty()) facts.nccl = version;
  facts.why_not[why_not.copy(facts.why_not, sizeof facts.why_not - 1)] = '\0';
  return facts;
}

// All ranks exchange their facts, and rank 0 sends what NCCL needs to connect them.
Result<void> CudaPlane::agree(const Call& call) {
  const auto step = [&](Collective collective, const void* in, void* out, std::size_t bytes) {
    Call told{.collective = collective, .in = in, .out = out, .count = bytes, .dtype = DL_UINT8};
    told.root = collective == Collective::broadcast ? 0 : -1;
    told.deadline = call.deadline;
    told.step_of = &users_call(call);
    return settings_.on_host(told);
  };
  const DeviceFacts own = own_facts();
  std::vector<DeviceFacts> all(static_cast<std::size_t>(settings_.size));
  if (auto ok = step(Collective::all_gather, &own, all.data(), sizeof own); !ok) return ok;
  DeviceChoice choice = choose_for_device(all);
  if (choice.nccl) {
    struct {
      ncclUniqueId id{};
      std::int32_t failed = 0;
    } root_id;
    if (settings_.rank == 0) {
      root_id.failed = (*nccl_library())->get_unique_id(&root_id.id) != ncclSuccess;
    }
    if (auto ok = step(Collective::broadcast, &root_id, &root_id, sizeof root_id); !ok) return ok;
    if (root_id.failed != 0) {
      choice = {.nccl = false, .why_not = "NCCL finds no network on rank 0"};
    } else if (auto ok = make_comm(call, root_id.id); !ok) {
      return ok;
    }
  }
  version_ = own.nccl;
  choice_ = std::move(choice);
  if (settings_.rank == 0) {
    if (choice_->nccl) {
      log_info("GPU memory: {}", nccl_version_text(version_));
    } else {
      log_info("GPU memory goes through the host's: {}", choice_->why_not);
    }
  }
  return {};
}

Result<void> CudaPlane::make_comm(const Call& call, const ncclUniqueId& id) {
  auto begun = NcclComm::begin(**nccl_library(), id, settings_.rank, settings_.size);
  if (!begun) return end(call, {DeviceVerdict::failed, {}, begun.error()});
  comm_ = std::move(*begun);
  return await_nccl(call,
                    std::min(call.deadline, deadline_after(steady_now(), settings_.init_timeout)));
}

// -- Waiting

// Waits until NCCL has finished its background work.
Result<void> CudaPlane::await_nccl(const Call& call, TimePoint deadline) {
  const Watched watched = watch(deadline, &abort_, [&](DeviceSight& sight, Error& failure) {
    const ncclResult_t state = comm_->state();
    sight.done = state == ncclSuccess;
    sight.failed = state != ncclSuccess && state != ncclInProgress;
    if (sight.failed) failure = comm_->error(activity_of(users_call(call)), state);
  });
  return end(call, watched);
}

Result<void> CudaPlane::await_event(const Call& call, CUevent event) {
  const Watched watched = watch(call.deadline, &abort_, [&](DeviceSight& sight, Error& failure) {
    const CUresult queried = look_at(event, sight);
    // A stream also advances when NCCL gives up: NCCL's state counts more than the event.
    const ncclResult_t state = comm_ ? comm_->state() : ncclSuccess;
    if (state != ncclSuccess && state != ncclInProgress) {
      sight.done = false;
      sight.failed = true;
      failure = comm_->error(activity_of(users_call(call)), state);
    } else if (sight.failed) {
      failure = cuda_error(activity_of(users_call(call)), queried);
    }
  });
  return end(call, watched);
}

// Runs on the watch's thread.
Result<void> CudaPlane::await_put(const StreamWatch::Watched& put) {
  Call call = put.call;
  call.deadline = kNever;
  if (auto ok = await_event(call, put.events.begun.get()); !ok) return ok;
  call.deadline = deadline_after(steady_now(), put.limit);
  return await_event(call, put.events.passed.get());
}

// If the call has failed, NCCL's communicator has failed, too: end it before any caller goes on.
Result<void> CudaPlane::end(const Call& call, const Watched& watched) {
  if (watched.verdict == DeviceVerdict::done) return {};
  Error error = settings_.ended(cause(call, watched));
  if (comm_) comm_->abort();
  return error;
}

Error CudaPlane::cause(const Call& call, const Watched& watched) const {
  if (watched.verdict == DeviceVerdict::late) return lateness(call, watched.waited);
  // The control links soon name a lost rank, and NCCL's error follows from that loss.
  for (int ms = 0; ms < kCauseMs && !abort_.raised(); ++ms) ::poll(nullptr, 0, 1);
  return abort_.raised() ? abort_.error() : watched.failure;
}

Error CudaPlane::lateness(const Call& call, Duration waited) const {
  const auto standstill = [&](Standstill what) {
    return standstill_error(what, call, settings_.rank, settings_.size, waited);
  };
  if (!comm_ || !nccl_serves(call)) return standstill(Standstill::own_gpu);
  if (auto absent = settings_.absent(call, waited)) return *absent;
  return standstill(choice_ ? Standstill::nccl : Standstill::setup);
}

}  // namespace

std::string_view device_support_missing() { return ""; }

int device_of(const void* memory) {
  const CudaDriver* const driver = cuda_driver();
  if (driver == nullptr || memory == nullptr) return -1;
  unsigned type = 0;
  int device = -1;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &device};
  // Fails if the program has not initialized the driver: then it has no memory on a GPU.
  if (driver->pointer_get_attributes(2, wanted, values, reinterpret_cast<CUdeviceptr>(memory)) !=
      CUDA_SUCCESS) {
    return -1;
  }
  return type == CU_MEMORYTYPE_DEVICE ? device : -1;
}

std::unique_ptr<DevicePlane> make_device_plane(DeviceSettings settings, AbortFlag& abort) {
  return std::make_unique<CudaPlane>(std::move(settings), abort);
}

}  // namespace dlaunch
