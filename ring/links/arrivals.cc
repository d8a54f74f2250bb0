#include "ring/links/arrivals.h"

#include <fmt/format.h>

namespace dlaunch {
namespace {

const char* have(const RankSet& ranks) { return ranks.size() == 1 ? "has" : "have"; }

}  // namespace

std::string describe(const Arrivals& a) {
  const std::string why = a.why.empty() ? "" : ": " + a.why;
  const std::string missing = format_rank_set(a.missing), unknown = format_rank_set(a.unknown);
  const char* const the_jobs = a.in_group ? "the job's " : "";
  const auto who = [&a](const std::string& ranks) {
    return a.in_group ? fmt::format("of a group of {} the job's rank {}", a.ranks, ranks)
                      : fmt::format("rank {} of {}", ranks, a.ranks);
  };
  if (!a.missing.empty()) {
    auto text = fmt::format("{} {} not arrived", who(missing), have(a.missing));
    if (a.unknown.empty()) return text;
    return text + fmt::format("; of {}rank {} this is not known{}", the_jobs, unknown, why);
  }
  if (!a.unknown.empty()) {
    const char* they_have = a.unknown.size() == 1 ? "it has" : "they have";
    return fmt::format("{} {} not connected; whether {} arrived is not known{}", who(unknown),
                       have(a.unknown), they_have, why);
  }
  return fmt::format("all {} ranks{} have arrived, but {}rank {} {} not connected (a firewall?)",
                     a.ranks, a.in_group ? " of the group" : "", the_jobs,
                     format_rank_set(a.unconnected), have(a.unconnected));
}

}  // namespace dlaunch
