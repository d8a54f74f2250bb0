#include "launcher/node/watch/gpu_asks.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr Duration kFirstGpuPause = std::chrono::seconds(10),
                   kLongestGpuPause = std::chrono::minutes(5);
// A driver that has failed no more for so long is well again.
constexpr Duration kGpuCalm = std::chrono::minutes(10);

}  // namespace

std::string GpuAsks::answered(TimePoint now, Answer answer, const std::string& how) {
  asks_ = false;
  never_ = answer == Answer::none;
  if (answer == Answer::failed) return failed(now, how);
  if (answer == Answer::none || !failing_) return "";
  failing_ = false;
  return "figures of GPUs are back";
}

// A driver that fails again and again is asked less and less.
std::string GpuAsks::failed(TimePoint now, const std::string& how) {
  const bool again = failing_ || (pause_ > Duration::zero() && now - failed_at_ < kGpuCalm);
  pause_ = again ? std::min(2 * pause_, kLongestGpuPause) : kFirstGpuPause;
  failed_at_ = now;
  next_ = deadline_after(now, pause_);
  if (failing_) return "";
  failing_ = true;
  return fmt::format("no figures of GPUs: asking NVML {}; dlaunch asks again in {}", how,
                     format_duration(pause_));
}

}  // namespace dlaunch
