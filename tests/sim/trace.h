// The events, a line each: the words stay empty if there is no reader.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"

namespace dlaunch::sim {

class Trace {
 public:
  Trace(bool on, TimePoint start) : on_(on), start_(start) {}
  template <class... Args>
  void say(TimePoint now, fmt::format_string<Args...> text, Args&&... args) {
    if (!on_) return;
    const auto ms = std::chrono::duration<double, std::milli>(now - start_).count();
    lines_.push_back(
        fmt::format("{:12.3f} ms  {}", ms, fmt::format(text, std::forward<Args>(args)...)));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  const bool on_;
  const TimePoint start_;
  std::vector<std::string> lines_;
};

}  // namespace dlaunch::sim
