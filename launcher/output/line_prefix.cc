#include "launcher/output/line_prefix.h"

#include <array>
#include <utility>

namespace dlaunch {
namespace {

RankSet local_of(const RankSet& ranks, const LocalRanks& local_ranks) {
  RankSet local;
  for (const int rank : ranks) {
    const auto known = local_ranks.find(rank);
    local.insert(known == local_ranks.end() ? rank : known->second);
  }
  return local;
}

}  // namespace

std::string line_prefix(const Plan& plan, const RankSet& ranks, const LocalRanks& local_ranks) {
  const bool spare = ranks.contains(-1);
  const std::array<std::pair<std::string_view, std::string>, 5> macros = {
      {{"${rank}", spare ? "spare" : format_rank_set(ranks)},
       {"${local_rank}", spare ? "spare" : format_rank_set(local_of(ranks, local_ranks))},
       {"${role_name}", plan.role},
       {"${hostname}", plan.host},
       {"${host}", plan.host}}};
  std::string text = plan.output.prefix;
  for (std::size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at)) {
    std::size_t step = 2;
    for (const auto& [macro, value] : macros) {
      if (text.compare(at, macro.size(), macro) != 0) continue;
      text.replace(at, macro.size(), value);
      step = value.size();
      break;
    }
    at += step;
  }
  return text;
}

}  // namespace dlaunch
