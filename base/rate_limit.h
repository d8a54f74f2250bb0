// RateLimit: limits lines that others can provoke at will to one per subject and period. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"

namespace dlaunch {

class RateLimit {
 public:
  // Remembers at most max_subjects at a time; further ones stay silent until some are old.
  RateLimit(Duration period, std::size_t max_subjects)
      : period_(period), max_subjects_(max_subjects) {}

  // nullopt: say nothing. Otherwise say it; the value is the number of suppressed lines of this
  // subject before it.
  std::optional<std::uint64_t> may_say(TimePoint now, const std::string& subject) {
    const auto it = said_.find(subject);
    if (it != said_.end() && now - it->second.at < period_) {
      ++it->second.unsaid;
      return std::nullopt;
    }
    const std::uint64_t unsaid = it == said_.end() ? 0 : it->second.unsaid;
    if (said_.size() >= max_subjects_) {
      std::erase_if(said_, [&](const auto& item) { return now - item.second.at >= period_; });
      if (said_.size() >= max_subjects_) return std::nullopt;
    }
    said_[subject] = {now, 0};
    return unsaid;
  }

 private:
  struct Said {
    TimePoint at;
    std::uint64_t unsaid = 0;
  };

  Duration period_;
  std::size_t max_subjects_;
  std::map<std::string, Said> said_;
};

}  // namespace dlaunch
