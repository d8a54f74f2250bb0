// The log lines of a listening socket about its visitors. Strangers can provoke such lines, so each
// address gets one a minute.
#pragma once

#include <string>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rate_limit.h"

namespace dlaunch {

class Complaints {
 public:
  void warn(const std::string& address, const std::string& what) {
    const auto unsaid = limit_.may_say(steady_now(), address);
    if (!unsaid) return;
    const auto more = *unsaid > 0 ? fmt::format(" ({} such lines were left out)", *unsaid) : "";
    log_warn("{}{}", what, more);
  }

 private:
  static constexpr Duration kQuiet = std::chrono::minutes(1);
  static constexpr std::size_t kMaxBlamed = 256;
  RateLimit limit_{kQuiet, kMaxBlamed};  // one subject is one address
};

}  // namespace dlaunch
