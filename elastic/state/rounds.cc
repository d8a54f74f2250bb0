#include "elastic/state/rounds.h"

#include <numeric>

#include <fmt/format.h>

#include "base/text.h"

namespace dlaunch {

Result<std::vector<std::string>> gather_texts(Rounds& rounds, std::string_view mine) {
  const auto ranks = static_cast<std::size_t>(rounds.size());
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(ranks);
  if (auto r = rounds.gather({&size, 1}, sizes); !r) return r.error();
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  if (auto r = rounds.gather_v(mine, all, counts); !r) return r.error();
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    texts.push_back(all.substr(at, count));
    at += count;
  }
  return texts;
}

Result<void> agree(Rounds& rounds, const Result<void>& mine) {
  const std::string code(1,
                         mine ? '\0' : static_cast<char>(1 + static_cast<int>(mine.error().code)));
  auto all = gather_texts(rounds, mine ? std::string() : code + mine.error().what);
  if (!all) return all.error();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    const std::string& text = (*all)[rank];
    if (text.empty()) continue;
    if (static_cast<int>(rank) == rounds.rank()) return mine;
    const int code_of_rank = text[0] - 1;
    const bool known = code_of_rank >= 0 && code_of_rank <= static_cast<int>(kLastErrc);
    return Error{.code = known ? static_cast<Errc>(code_of_rank) : Errc::protocol,
                 .what = fmt::format("rank {}: {}", rank, escaped(text.substr(1))),
                 .rank = static_cast<int>(rank)};
  }
  return {};
}

}  // namespace dlaunch
