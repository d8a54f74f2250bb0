#include "cli/doctor/sites.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>

#include "base/site_list.h"
#include "base/units.h"

namespace dlaunch {

std::vector<std::vector<int>> sites_of(int hosts, const std::vector<PairFacts>& pairs) {
  std::vector<int> lowest(static_cast<std::size_t>(hosts));  // host that each is joined with
  std::iota(lowest.begin(), lowest.end(), 0);
  if (pairs.empty()) return {lowest};  // one host, or the measurement has failed
  for (const auto& pair : pairs) {
    if (pair.round_trip_s >= kSiteRoundTrip_s) continue;
    const auto [low, high] = std::minmax(
        {lowest[static_cast<std::size_t>(pair.a)], lowest[static_cast<std::size_t>(pair.b)]});
    if (low != high) std::replace(lowest.begin(), lowest.end(), high, low);
  }
  std::vector<std::vector<int>> sites;
  for (int first = 0; first < hosts; ++first) {
    std::vector<int> site;
    for (int host = first; host < hosts; ++host) {
      if (lowest[static_cast<std::size_t>(host)] == first) site.push_back(host);
    }
    if (!site.empty()) sites.push_back(std::move(site));
  }
  return sites;
}

std::string sites_text(const std::vector<HostFacts>& hosts, const std::vector<PairFacts>& pairs) {
  const auto sites = sites_of(static_cast<int>(hosts.size()), pairs);
  if (sites.size() < 2) return "";
  std::vector<double> far;
  for (const auto& pair : pairs) {
    if (pair.round_trip_s >= kSiteRoundTrip_s) far.push_back(pair.round_trip_s);
  }
  const auto [least, most] = std::ranges::minmax(far);  // two sites have such a pair
  if (sites.size() > kLongestSiteList) {
    return fmt::format(
        "\nThese are {} sites, with round trips of {} to {} between them: more than the {} that "
        "--sites takes.\n",
        sites.size(), format_seconds(least), format_seconds(most), kLongestSiteList);
  }
  std::string text = fmt::format(
      "\nThese are {} sites, with round trips of {} to {} between them. One job over all hosts "
      "waits for these\n"
      "lines in each step. Rather start a job at each site, on its hosts, with this FILE: see "
      "--sites in dlaunch(1).\n",
      sites.size(), format_seconds(least), format_seconds(most));
  for (std::size_t s = 0; s < sites.size(); ++s) {
    std::string names;
    for (const int host : sites[s]) names += " " + hosts[static_cast<std::size_t>(host)].host;
    text += fmt::format("site{} {}:29600  #{}\n", s + 1,
                        hosts[static_cast<std::size_t>(sites[s].front())].host, names);
  }
  return text;
}

}  // namespace dlaunch
