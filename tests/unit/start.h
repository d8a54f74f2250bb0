// The moment at which tests with a clock of their own begin.
#pragma once

#include "base/clock.h"

namespace dlaunch {

inline const TimePoint kStart(std::chrono::seconds(1000));

}  // namespace dlaunch
