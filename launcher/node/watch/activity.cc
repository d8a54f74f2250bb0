#include "launcher/node/watch/activity.h"

#include <algorithm>

namespace dlaunch {
namespace {

// The kernel counts CPU time in hundredths of a second.
constexpr Duration kWindow = std::chrono::seconds(1);
constexpr double kWorks = 0.03;  // of one CPU

}  // namespace

TimePoint Activity::look(TimePoint now, const Sample& sample) {
  if (!cpu_) {
    active_ = since_ = now;
    cpu_ = sample.cpu;
  }
  if (sample.said) active_ = std::max(active_, std::min(*sample.said, now));
  const Duration passed = now - since_, used = sample.cpu - *cpu_;
  if (passed < kWindow) return active_;
  const bool a_process_ended = used < Duration::zero();  // and took its time along
  const std::chrono::duration<double> most = std::chrono::duration<double>(passed) * kWorks;
  if (a_process_ended || used > most) active_ = now;
  since_ = now;
  cpu_ = sample.cpu;
  return active_;
}

}  // namespace dlaunch
