#include "ring/device/host_path.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "ring/device/device_wait.h"

namespace dlaunch {
namespace {

// Large enough to hide the start of a copy; small enough that the first and the last one, which
// overlap with nothing, are a small part. A guess, not measured on a GPU.
constexpr std::size_t kGranuleBytes = 4 << 20;

// For copies of two granules, which follow the present work of the user's stream.
constexpr Duration kSettlePatience = std::chrono::seconds(5);

Result<void> grow(PinnedMemory& memory, std::size_t& bytes, std::size_t needed) {
  if (bytes >= needed) return {};
  auto made = make_pinned_memory(needed);
  if (!made) return made.error();
  memory = std::move(*made);
  bytes = needed;
  return {};
}

}  // namespace

std::string HostPath::explain(const Call& call, int size) {
  return fmt::format("granules: {}", cut_for_host(call, size, kGranuleBytes).granules);
}

Result<void> HostPath::open(const HostCut& cut) {
  for (DeviceStream* stream : {&down_, &up_}) {
    if (*stream) continue;
    auto made = make_device_stream();
    if (!made) return made.error();
    *stream = std::move(*made);
  }
  for (DeviceEvent* event :
       {&begin_, &slots_[0].loaded, &slots_[0].stored, &slots_[1].loaded, &slots_[1].stored}) {
    if (*event) continue;
    auto made = make_device_event();
    if (!made) return made.error();
    *event = std::move(*made);
  }
  for (Slot& slot : slots_) {
    slot.storing = false;
    if (auto ok = grow(slot.in, slot.in_bytes, cut.in_bytes); !ok) return ok;
    if (auto ok = grow(slot.out, slot.out_bytes, cut.out_bytes); !ok) return ok;
  }
  return {};
}

Result<void> HostPath::load(const Call& call, const HostCut& cut, std::size_t number) {
  Slot& slot = slots_[number % 2];
  slot.granule = host_granule(call, rank_, size_, cut, number);
  // A broadcast has one buffer.
  char* const to = call.collective == Collective::broadcast ? slot.out.get() : slot.in.get();
  for (const HostPiece& piece : slot.granule.in) {
    const CUresult copied = cuda_driver()->copy_to_host(
        to + piece.staged, reinterpret_cast<CUdeviceptr>(piece.in_device), piece.bytes,
        down_.get());
    if (copied != CUDA_SUCCESS) return cuda_error("cuMemcpyDtoHAsync", copied);
  }
  return record(slot.loaded, down_.get());
}

// One granule, up to the start of its way back, which goes on by itself.
Result<void> HostPath::turn(const Call& call, Slot& slot) {
  if (auto ok = wait_(call, slot.loaded.get()); !ok) return ok;
  if (slot.storing) {
    if (auto ok = wait_(call, slot.stored.get()); !ok) return ok;
  }
  Call step = call;
  step.in = call.collective == Collective::broadcast ? slot.out.get() : slot.in.get();
  step.out = slot.out.get();
  step.count = slot.granule.count;
  step.counts = slot.granule.counts.empty() ? nullptr : slot.granule.counts.data();
  step.splits = slot.granule.splits ? &*slot.granule.splits : nullptr;
  step.list = nullptr;
  step.step_of = &users_call(call);
  step.task = {};
  if (auto ok = on_host_(step); !ok) return ok;
  for (const HostPiece& piece : slot.granule.out) {
    const CUresult copied =
        cuda_driver()->copy_to_device(reinterpret_cast<CUdeviceptr>(piece.out_device),
                                      slot.out.get() + piece.staged, piece.bytes, up_.get());
    if (copied != CUDA_SUCCESS) return cuda_error("cuMemcpyHtoDAsync", copied);
  }
  slot.storing = true;
  return record(slot.stored, up_.get());
}

Result<void> HostPath::run(const Call& call, CUstream stream) {
  const HostCut cut = cut_for_host(call, size_, kGranuleBytes);
  if (cut.granules == 0) return {};
  if (auto ok = open(cut); !ok) return ok;
  auto done = pass(call, cut, stream);
  if (!done) settle();
  return done;
}

// Waits for copies that a failed call has begun. If they stand still their host memory is left to
// them for ever.
void HostPath::settle() {
  const TimePoint until = steady_now() + kSettlePatience;
  bool settled = true;
  for (const CUstream stream : {down_.get(), up_.get()}) {
    const bool recorded = record(begin_, stream).has_value();
    const auto look = [&](DeviceSight& sight, Error&) { (void)look_at(begin_.get(), sight); };
    settled = settled && recorded && watch(until, nullptr, look).verdict == DeviceVerdict::done;
  }
  if (settled) return;
  log_warn("rank {}: copies between the GPU and the host hang: it leaves them behind", rank_);
  for (Slot& slot : slots_) {
    (void)slot.in.release();
    (void)slot.out.release();
    slot.in_bytes = slot.out_bytes = 0;
  }
}

// All granules, one after the other.
Result<void> HostPath::pass(const Call& call, const HostCut& cut, CUstream stream) {
  const CudaDriver& cuda = *cuda_driver();
  auto ok = record(begin_, stream);
  for (const CUstream own : {down_.get(), up_.get()}) {
    if (ok) ok = cuda_done("cuStreamWaitEvent", cuda.stream_wait_event(own, begin_.get(), 0));
  }
  if (ok) ok = load(call, cut, 0);
  for (std::size_t i = 0; ok && i < cut.granules; ++i) {
    // Its slot's last granule was on the host two turns ago: that memory is free.
    if (i + 1 < cut.granules) ok = load(call, cut, i + 1);
    if (ok) ok = turn(call, slots_[i % 2]);
  }
  if (!ok) return ok;
  return wait_(call, slots_[(cut.granules - 1) % 2].stored.get());
}

}  // namespace dlaunch
