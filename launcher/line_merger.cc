#include "launcher/line_merger.h"

#include <algorithm>

namespace dlaunch {

void LineMerger::add(TimePoint now, int rank, std::string_view line) {
  Stream& own = streams_[rank];
  const std::uint64_t place = own.said++;
  const std::size_t first = std::max(own.next_free, popped_) - popped_;
  for (std::size_t i = first; i < held_.size(); ++i) {
    if (held_[i].line.text != line) continue;
    held_[i].line.ranks.insert(rank);
    own.next_free = popped_ + i + 1;
    return;
  }
  std::size_t at = first;
  while (at < held_.size() && held_[at].place <= place) ++at;
  held_.insert(held_.begin() + static_cast<std::ptrdiff_t>(at),
               Held{{{rank}, std::string(line)}, now, place});
  held_bytes_ += line.size() + sizeof(Held);
  const std::uint64_t number = popped_ + at;
  // Whoever's last line stood behind the new one finds it a place further on.
  for (auto& [other, stream] : streams_) {
    if (stream.next_free > number) ++stream.next_free;
  }
  own.next_free = number + 1;
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
