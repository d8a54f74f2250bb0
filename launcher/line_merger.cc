#include "launcher/line_merger.h"

#include <algorithm>

namespace dlaunch {

void LineMerger::add(TimePoint now, int rank, std::string_view line) {
  auto& free = next_free_[rank];
  for (std::uint64_t i = std::max(free, popped_) - popped_; i < held_.size(); ++i) {
    if (held_[i].line.text != line) continue;
    held_[i].line.ranks.insert(rank);
    free = popped_ + i + 1;
    return;
  }
  held_.push_back({{{rank}, std::string(line)}, now});
  held_bytes_ += line.size() + sizeof(Held);
  free = popped_ + held_.size();
}

LineMerger::Merged LineMerger::pop() {
  Merged line = std::move(held_.front().line);
  held_.pop_front();
  ++popped_;
  held_bytes_ -= line.text.size() + sizeof(Held);
  return line;
}

std::vector<LineMerger::Merged> LineMerger::take(TimePoint now) {
  std::vector<Merged> lines;
  auto complete = [&](const RankSet& ranks) {
    return std::includes(ranks.begin(), ranks.end(), present_.begin(), present_.end());
  };
  while (!held_.empty() && (complete(held_.front().line.ranks) ||
                            now >= held_.front().since + kWindow || held_bytes_ > kMaxHeldBytes)) {
    lines.push_back(pop());
  }
  return lines;
}

std::vector<LineMerger::Merged> LineMerger::take_all() {
  std::vector<Merged> lines;
  while (!held_.empty()) lines.push_back(pop());
  return lines;
}

std::optional<TimePoint> LineMerger::deadline() const {
  if (held_.empty()) return std::nullopt;
  return held_.front().since + kWindow;
}

}  // namespace dlaunch
