// The words of training across sites: members, merges, contributions, quorums. A *site* is one job
// with its own communicator; its *endpoint*, a thread of rank 0, stands for it among the others. A
// *merge* is one outer average over sites, and all sites apply every merge.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <vector>

namespace dlaunch {

inline constexpr int kMostSites = 16;
inline constexpr std::uint64_t kMostPayloadBytes = std::uint64_t{1} << 44;

// One life of a site's endpoint. A restarted endpoint has a larger incarnation (the time of its
// start, in ns) and is another member: it has no vote until a merge names it.
struct SiteMember {
  std::int32_t site = 0;  // its place in the file of sites, from 0
  std::uint64_t incarnation = 0;
  auto operator<=>(const SiteMember&) const = default;
};

// Ordered by epoch, then by number. An epoch begins with a founding, and no epoch is founded twice.
struct MergeId {
  std::uint64_t epoch = 0;  // 0: the state of a site that was in no merge yet
  std::uint64_t number = 0;
  auto operator<=>(const MergeId&) const = default;
  MergeId next() const { return {epoch, number + 1}; }
};

// What a site gives for one merge: an encoded gradient, made with the state after the merge before.
// `member` and `id` name it; a member makes one contribution for an id at most.
struct Contribution {
  SiteMember member;
  MergeId id;  // of the merge that it is for
  std::uint64_t bytes = 0;
  std::uint64_t digest = 0;  // of the payload, by the shell
  auto operator<=>(const Contribution&) const = default;
};

// A decided merge. A *founding* begins an epoch: it has no contributions, its number is that of the
// founder's state, and all sites take that state.
struct Merge {
  MergeId id;
  std::vector<SiteMember> members;          // who votes on the next merge; in the order of sites
  std::vector<Contribution> contributions;  // in the order of sites, one of a site at most
  std::vector<std::int32_t> order;          // the members' sites, as the ring of the next payloads
  bool founding = false;
  std::uint64_t hash = 0;  // of the founder's state; 0 in other merges
  bool operator==(const Merge&) const = default;
};

// Whether the values can be those of a contribution, or a merge, among so many sites.
bool makes_sense(const Contribution& contribution, int sites = kMostSites);
bool makes_sense(const Merge& merge, int sites = kMostSites);

bool is_among(const std::vector<SiteMember>& members, const SiteMember& member);

// Whether a site with this state, whose hash this is, has that of the founding, and not yet its id.
bool founds_for(const Merge& founding, const MergeId& held, std::uint64_t hash);

// More than half of the members, or exactly half with the lowest site among them (dynamic-linear
// voting, Jajodia and Mutchler 1990). So members can vanish one after the other until one is left,
// and two halves never both go on. No members: no quorum.
bool is_site_quorum(const std::vector<SiteMember>& members, const std::vector<SiteMember>& there);

}  // namespace dlaunch
