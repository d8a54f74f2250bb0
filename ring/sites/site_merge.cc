#include "ring/sites/site_merge.h"

#include <functional>

namespace dlaunch {
namespace {

bool is_site(std::int32_t site, int sites) { return site >= 0 && site < sites; }

}  // namespace

bool makes_sense(const Contribution& it, int sites) {
  return is_site(it.member.site, sites) && it.id.number > 0 && it.bytes > 0 &&
         it.bytes <= kMostPayloadBytes;
}

bool makes_sense(const Merge& merge, int sites) {
  const auto ascends = [](int a, int b) { return a < b; };
  std::vector<std::int32_t> voters, givers;
  for (const SiteMember& member : merge.members) voters.push_back(member.site);
  for (const Contribution& it : merge.contributions) {
    if (!makes_sense(it, sites) || it.id != merge.id) return false;
    givers.push_back(it.member.site);
  }
  const auto sound = [&](const std::vector<std::int32_t>& all) {
    return std::all_of(all.begin(), all.end(), [=](int site) { return is_site(site, sites); }) &&
           std::adjacent_find(all.begin(), all.end(), std::not_fn(ascends)) == all.end();
  };
  std::vector<std::int32_t> ring = merge.order;
  std::sort(ring.begin(), ring.end());
  return merge.id.epoch > 0 && sound(voters) && sound(givers) && ring == voters &&
         !voters.empty() && merge.founding == givers.empty();
}

bool is_among(const std::vector<SiteMember>& members, const SiteMember& member) {
  return std::find(members.begin(), members.end(), member) != members.end();
}

bool founds_for(const Merge& founding, const MergeId& held, std::uint64_t hash) {
  return founding.founding && held < founding.id && held.number == founding.id.number &&
         hash == founding.hash;
}

bool is_site_quorum(const std::vector<SiteMember>& members, const std::vector<SiteMember>& there) {
  const auto is_there = [&](const SiteMember& member) {
    return std::find(there.begin(), there.end(), member) != there.end();
  };
  const auto count = 2 * std::count_if(members.begin(), members.end(), is_there);
  const auto size = static_cast<std::ptrdiff_t>(members.size());
  if (count != size) return count > size;
  return size > 0 && is_there(*std::min_element(members.begin(), members.end()));
}

}  // namespace dlaunch
