#include "base/rank_set.h"

#include "base/units.h"

namespace dlaunch {

Result<RankSet> parse_rank_set(std::string_view text, int max_ranks) {
  RankSet ranks;
  std::string_view rest = text;
  while (true) {
    const auto comma = rest.find(',');
    const auto item = rest.substr(0, comma);
    const auto dash = item.find('-');
    auto first = parse_int(item.substr(0, dash), 0, max_ranks - 1, "number");
    if (!first) return first.error();
    int last = *first;
    if (dash != std::string_view::npos) {
      auto parsed = parse_int(item.substr(dash + 1), *first, max_ranks - 1, "end of a range");
      if (!parsed) return parsed.error();
      last = *parsed;
    }
    for (int rank = *first; rank <= last; ++rank) ranks.insert(rank);
    if (comma == std::string_view::npos) return ranks;
    rest.remove_prefix(comma + 1);
  }
}

std::string format_rank_set(const RankSet& ranks) {
  std::string text;
  for (auto it = ranks.begin(); it != ranks.end();) {
    const int first = *it;
    int last = first;
    for (++it; it != ranks.end() && *it == last + 1; ++it) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text += '-' + std::to_string(last);
  }
  return text;
}

}  // namespace dlaunch
