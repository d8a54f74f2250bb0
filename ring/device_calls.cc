// A communicator's handling of GPU memory: it finds the calls with such buffers, and passes them to
// the device plane, which the first one makes.
#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "ring/communicator.h"

namespace dlaunch {
namespace {

// The buffers that show where a call's memory is; null if the call moves nothing on any rank. With
// splits one rank does not know that.
std::pair<const void*, const void*> buffers_of(const Call& call, int ranks) {
  if (call.splits != nullptr) return {call.in, call.out};
  const bool moves = call.counts == nullptr
                         ? call.count > 0
                         : std::any_of(call.counts, call.counts + ranks, [](auto n) { return n; });
  if (!moves) return {};
  if (call.list == nullptr) return {call.in, call.out};
  return {call.list->in.front(), call.list->out.front()};
}

Error host_only(const Call& call, std::string_view why) {
  return {.code = Errc::unsupported,
          .what = fmt::format("{}: {}a buffer is in a GPU's memory: copy it to the host's first, "
                              "with dl_copy()",
                              collective_name(call.collective), why)};
}

// Composed calls reduce on the host.
Result<void> refuse_gpu(const Call& call) {
  const auto on_gpu = [](const void* at) { return at != nullptr && device_of(at) >= 0; };
  const bool any = on_gpu(call.in) || on_gpu(call.out) ||
                   (call.compression != nullptr && on_gpu(call.compression->residual)) ||
                   (call.shards != nullptr &&
                    std::any_of(call.shards->in.begin(), call.shards->in.end(), on_gpu));
  if (!any || call.count == 0) return {};
  return host_only(call, "");
}

}  // namespace

// The GPU that has the call's memory; -1: it is the host's. An error if the call cannot be there.
Result<int> Communicator::gpu_of(const Call& call) const {
  if (is_composed(call.collective)) {
    if (auto ok = refuse_gpu(call); !ok) return ok.error();
    return -1;
  }
  const auto [in, out] = buffers_of(call, job_.size);
  const int device = device_of(in != nullptr ? in : out);
  if (in != nullptr && out != nullptr && in != out && device_of(out) != device) {
    return Error{
        .code = Errc::usage,
        .what = fmt::format("{}: one buffer is in a GPU's memory and the other is not, or in that "
                            "of another one",
                            collective_name(call.collective))};
  }
  if (device >= 0 && is_function(call.op)) {
    return host_only(call,
                     "the operation is a function of the program, which runs on the host, and ");
  }
  return device;
}

// Finds out whether the call is on device memory. If it is, notes the work that it follows.
Result<void> Communicator::attach(Call& call, bool at_once) {
  const auto gpu = gpu_of(call);
  if (!gpu) return gpu.error();
  if (*gpu < 0) return {};
  if (auto ok = device_plane().attach(call, *gpu, stream_, at_once); !ok) return ok;
  call.task.ordered = at_once && ordered_;
  return {};
}

// ended: for a call that goes on after a return without error.
Result<void> Communicator::run_on_device(const Call& call, std::function<void(bool failed)> ended) {
  return call.task.ordered ? device_->put(call, std::move(ended)) : device_->run(call);
}

Result<void> Communicator::sync() {
  if (forked_) return forked_error();
  const bool well = !device_ || device_->settle();
  return well ? Result<void>() : finish(abort_.error());
}

void Communicator::wind_up() {
  if (!forked_ && abort_.raised() && device_) (void)device_->settle();
}

// Call it after device memory was seen.
DevicePlane& Communicator::device_plane() {
  if (!device_) {
    static std::atomic<bool> warned{false};  // one warning is enough for all groups
    if (verifier_ && job_.rank == 0 && !warned.exchange(true)) {
      log_warn("--verify does not compare results in the memory of a GPU");
    }
    device_ = make_device_plane(
        {.rank = job_.rank,
         .size = job_.size,
         .use_nccl = job_.use_nccl,
         .init_timeout = job_.init_timeout,
         .on_host = [this](const Call& step) { return run_on_host(step); },
         .absent = [this](const Call& call, Duration waited) { return absent(call, waited); },
         .ended = [this](const Error& error) { return finish(error).error(); }},
        abort_);
  }
  return *device_;
}

// A message with a buffer on a GPU gets one on the host; data to send is copied there.
Result<StagedMessage> Communicator::stage(Message& message) {
  const void* const buffer = message.is_send ? message.send : message.recv;
  const int device = message.count > 0 ? device_of(buffer) : -1;
  if (device < 0) return StagedMessage{};
  StagedMessage staged{.host = nullptr,
                       .device = message.is_send ? nullptr : message.recv,
                       .bytes = message.count * dtype_bytes(message.dtype),
                       .stream = stream_};
  auto host = device_plane().stage(device, staged.bytes);
  if (!host) return host.error();
  staged.host = std::move(*host);
  if (message.is_send) {
    auto copied =
        device_->copy(staged.host.get(), message.send, staged.bytes, DevicePlane::To::host, stream_,
                      deadline_after(steady_now(), op_timeout()));
    if (!copied) return finish(copied).error();
    message.send = staged.host.get();
  } else {
    message.recv = staged.host.get();
  }
  return staged;
}

Result<void> Communicator::unstage(const StagedMessage& staged) {
  if (staged.device == nullptr) return {};
  return finish(device_->copy(staged.device, staged.host.get(), staged.bytes,
                              DevicePlane::To::device, staged.stream,
                              deadline_after(steady_now(), op_timeout())));
}

Result<void> Communicator::set_backend(std::string_view backend) {
  if (backend != "auto" && backend != "cpu") {
    return Error{.code = Errc::usage, .what = "set_backend: neither \"auto\" nor \"cpu\""};
  }
  if (device_) {
    return Error{.code = Errc::usage,
                 .what = "set_backend: after the first call on the memory of a GPU"};
  }
  job_.use_nccl = backend == "auto";
  return {};
}

const char* Communicator::gpu_transport() const { return device_ ? device_->name() : ""; }

Result<void> Communicator::set_stream(void* stream) {
  if (const auto missing = device_support_missing(); !missing.empty()) {
    return Error{.code = Errc::unsupported, .what = std::string(missing)};
  }
  stream_ = stream;
  return {};
}

Result<void> Communicator::set_stream_ordered(bool ordered) {
  if (const auto missing = device_support_missing(); !missing.empty()) {
    return Error{.code = Errc::unsupported, .what = std::string(missing)};
  }
  ordered_ = ordered;
  return {};
}

}  // namespace dlaunch
