#include "base/nearest.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace dlaunch {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the matrix: swaps need the one before last.
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t kLongest = 40;
  if (word.size() < 2 || word.size() > kLongest) return "";
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (candidate.size() > 1 && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view near = nearest_word(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
}

}  // namespace dlaunch
