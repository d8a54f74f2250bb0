#include "ring/device/device_copy.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"
#include "ring/device/device_memory.h"
#include "ring/device/device_wait.h"
#include "ring/kernels/copy.h"

namespace dlaunch {
namespace {

// As in ring/device/host_path.cc.
constexpr std::size_t kCopyPiece = 4 << 20;

class CudaCopier final : public DeviceCopier {
 public:
  ~CudaCopier() override;
  Result<void> copy(void* to, const void* from, std::size_t bytes, To where, int device,
                    void* stream, TimePoint deadline) override;

 private:
  struct Slot {
    PinnedMemory memory;
    DeviceEvent passed;
    bool under_way = false;
  };
  // Pieces of one copy: number i goes through slot i % 2.
  struct Task {
    char* to;
    const char* from;
    std::size_t bytes;
    CUstream stream;
    TimePoint deadline;
    std::size_t pieces() const { return (bytes + kCopyPiece - 1) / kCopyPiece; }
    std::size_t at(std::size_t piece) const { return piece * kCopyPiece; }
    std::size_t size(std::size_t piece) const { return std::min(kCopyPiece, bytes - at(piece)); }
  };
  Result<void> open(int device);
  Result<void> to_host(const Task& task);
  Result<void> to_device(const Task& task);
  Result<void> begun(Slot& slot, const Task& task);
  Result<void> await(Slot& slot, const Task& task);

  std::unique_ptr<DeviceContext> context_;
  int device_ = -1;
  Slot slots_[2];
};

CudaCopier::~CudaCopier() {
  if (!context_) return;
  const CurrentContext current(context_->get());
  for (Slot& slot : slots_) {
    if (slot.under_way) (void)slot.memory.release();  // it stands still: never freed
    slot.memory.reset();
    slot.passed.reset();
  }
}

Result<void> CudaCopier::open(int device) {
  if (context_ && device == device_) return {};
  if (context_) {
    return Error{
        .code = Errc::usage,
        .what = fmt::format("this communicator copies from and to GPU {}: this memory is on GPU {}",
                            device_, device)};
  }
  auto context = DeviceContext::retain(device);
  if (!context) return context.error();
  const CurrentContext current((*context)->get());
  if (auto ok = current.made(); !ok) return ok;
  Slot fresh[2];
  for (Slot& slot : fresh) {
    auto memory = make_pinned_memory(kCopyPiece);
    if (!memory) return memory.error();
    auto event = make_device_event();
    if (!event) return event.error();
    slot.memory = std::move(*memory);
    slot.passed = std::move(*event);
  }
  std::move(std::begin(fresh), std::end(fresh), slots_);
  device_ = device;
  context_ = std::move(*context);
  return {};
}

Result<void> CudaCopier::copy(void* to, const void* from, std::size_t bytes, To where, int device,
                              void* stream, TimePoint deadline) {
  if (auto ok = open(device); !ok) return ok;
  const CurrentContext current(context_->get());
  if (auto ok = current.made(); !ok) return ok;
  const Task task{.to = static_cast<char*>(to),
                  .from = static_cast<const char*>(from),
                  .bytes = bytes,
                  .stream = static_cast<CUstream>(stream),
                  .deadline = deadline};
  // A copy that did not end in time: its slot is not free before.
  for (Slot& slot : slots_) {
    if (auto ok = await(slot, task); !ok) return ok;
  }
  return where == To::host ? to_host(task) : to_device(task);
}

Result<void> CudaCopier::to_host(const Task& task) {
  const CudaDriver& cuda = *cuda_driver();
  const auto load = [&](std::size_t i) {
    Slot& slot = slots_[i % 2];
    const CUresult copied =
        cuda.copy_to_host(slot.memory.get(), reinterpret_cast<CUdeviceptr>(task.from + task.at(i)),
                          task.size(i), task.stream);
    if (copied != CUDA_SUCCESS) return Result<void>(cuda_error("cuMemcpyDtoHAsync", copied));
    return begun(slot, task);
  };
  if (auto ok = load(0); !ok) return ok;
  for (std::size_t i = 0; i < task.pieces(); ++i) {
    if (i + 1 < task.pieces()) {
      if (auto ok = load(i + 1); !ok) return ok;
    }
    Slot& slot = slots_[i % 2];
    if (auto ok = await(slot, task); !ok) return ok;
    copy_cached(task.to + task.at(i), slot.memory.get(), task.size(i));
  }
  return {};
}

Result<void> CudaCopier::to_device(const Task& task) {
  const CudaDriver& cuda = *cuda_driver();
  for (std::size_t i = 0; i < task.pieces(); ++i) {
    Slot& slot = slots_[i % 2];
    if (auto ok = await(slot, task); !ok) return ok;
    copy_cached(slot.memory.get(), task.from + task.at(i), task.size(i));
    const CUresult copied = cuda.copy_to_device(reinterpret_cast<CUdeviceptr>(task.to + task.at(i)),
                                                slot.memory.get(), task.size(i), task.stream);
    if (copied != CUDA_SUCCESS) return cuda_error("cuMemcpyHtoDAsync", copied);
    if (auto ok = begun(slot, task); !ok) return ok;
  }
  for (Slot& slot : slots_) {
    if (auto ok = await(slot, task); !ok) return ok;
  }
  return {};
}

Result<void> CudaCopier::begun(Slot& slot, const Task& task) {
  slot.under_way = true;
  return record(slot.passed, task.stream);
}

Result<void> CudaCopier::await(Slot& slot, const Task& task) {
  if (!slot.under_way) return {};
  const Watched watched = watch(task.deadline, nullptr, [&](DeviceSight& sight, Error& failure) {
    const CUresult queried = look_at(slot.passed.get(), sight);
    if (sight.failed) failure = cuda_error("copy of a GPU's memory", queried);
  });
  slot.under_way = watched.verdict != DeviceVerdict::done;
  if (!slot.under_way) return {};
  if (watched.verdict == DeviceVerdict::failed) return watched.failure;
  return Error{.code = Errc::timeout,
               .what = fmt::format("copy of a GPU's memory timed out after {}: GPU {} makes no "
                                   "progress with the work in its stream",
                                   format_duration(watched.waited), device_)};
}

}  // namespace

std::unique_ptr<DeviceCopier> make_device_copier() { return std::make_unique<CudaCopier>(); }

}  // namespace dlaunch
