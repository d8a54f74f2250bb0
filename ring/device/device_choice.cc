#include "ring/device/device_choice.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/fnv1a.h"
#include "base/units.h"
#include "ring/device/nccl_steps.h"
#include "ring/kernels/reduce.h"
#include "ring/stream/stream_errors.h"

namespace dlaunch {

void name_gpu(DeviceFacts& facts, const void* uuid, const char* nccl_hostid) {
  std::memcpy(facts.gpu, uuid, sizeof facts.gpu);
  if (nccl_hostid == nullptr) return;
  Fnv1a hash;
  hash.add(std::string_view(nccl_hostid));
  for (std::size_t i = 0; i < sizeof facts.gpu; ++i) {
    facts.gpu[i] ^= static_cast<unsigned char>(hash.value() >> i % 8 * 8);
  }
}

DeviceChoice choose_for_device(const std::vector<DeviceFacts>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].nccl == 0) return {false, fmt::format("rank {}: {}", r, ranks[r].why_not)};
  }
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].nccl == ranks[0].nccl) continue;
    return {false,
            fmt::format("rank 0 has NCCL {} and rank {} has {}", ranks[0].nccl, r, ranks[r].nccl)};
  }
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = a + 1; b < ranks.size(); ++b) {
      if (std::memcmp(ranks[a].gpu, ranks[b].gpu, sizeof ranks[a].gpu) != 0) continue;
      return {false, fmt::format("rank {} and rank {} share one GPU", a, b)};
    }
  }
  return {true, ""};
}

bool nccl_serves(const Call& call) {
  if (!traits_of(call.collective).reduces) return true;
  if (is_function(call.op)) return false;
  if (is_float8(call.dtype)) return false;
  if (call.op == DL_PRODUCT && is_complex(call.dtype)) return false;
  if (call.op == DL_AVG || call.op == kPremulSum) return dtype_is_float(call.dtype);
  return call.op != DL_BAND && call.op != DL_BOR && call.op != DL_BXOR;
}

DeviceVerdict judge_device(TimePoint now, TimePoint deadline, const DeviceSight& sight) {
  if (sight.done) return DeviceVerdict::done;
  if (sight.over) return DeviceVerdict::over;
  if (sight.failed) return DeviceVerdict::failed;
  return now >= deadline ? DeviceVerdict::late : DeviceVerdict::wait;
}

Error standstill_error(Standstill what, const Call& call, int rank, int ranks, Duration waited) {
  const std::string activity = activity_of(call), time = format_duration(waited);
  switch (what) {
    case Standstill::setup:
      return {.code = Errc::timeout,
              .what = fmt::format("{} timed out after {}: all ranks are in it, but NCCL does not "
                                  "connect their GPUs; NCCL_DEBUG=INFO says more",
                                  activity, time)};
    case Standstill::nccl:
      return {.code = Errc::peer_lost,
              .what = fmt::format(
                  "{} hangs on the GPUs: all {} ranks are in it, but {} has not ended after "
                  "{} (rank {} saw it first). libdlring has aborted NCCL's communicator; a new "
                  "round or a restart makes another one, and NCCL_DEBUG=INFO says more",
                  activity, ranks, nccl_functions(nccl_steps(call, rank, ranks)), time, rank)};
    case Standstill::own_gpu:
      break;
  }
  return {
      .code = Errc::timeout,
      .what = fmt::format(
          "{} timed out after {}: the GPU of rank {} makes no progress with the work in its stream",
          activity, time, rank),
      .rank = rank};
}

Duration device_pause(Duration waited) {
  constexpr Duration kOversleep = std::chrono::microseconds(50);  // the kernel's usual timer slack
  return std::clamp<Duration>(waited / 8 - kOversleep, Duration::zero(),
                              std::chrono::milliseconds(1));
}

}  // namespace dlaunch
