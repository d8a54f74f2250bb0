#include "tests/sim/sites/checker.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace dlaunch::sim {

std::uint64_t hash_after(std::uint64_t hash, const Merge& merge) {
  for (const Contribution& it : merge.contributions) {
    hash = (hash ^ it.digest) * 0x9e3779b97f4a7c15 + 1;
    hash ^= hash >> 29;
  }
  return hash;
}

std::string to_string(const MergeId& id) { return fmt::format("{}.{}", id.epoch, id.number); }

void SiteChecker::break_rule(std::string what) {
  if (wrong_.empty()) wrong_ = std::move(what);
}

void SiteChecker::whole(const SiteMember& member, const Contribution& payload) {
  whole_[member].insert(payload);
}

void SiteChecker::decided(const Merge& merge) {
  const auto [known, is_new] = merges_.emplace(merge.id, merge);
  if (!is_new) {
    if (known->second != merge) break_rule("two merges have one id");
    return;
  }
  if (merge.founding) {
    ++foundings_;
    return;
  }
  for (const Contribution& it : merge.contributions) {
    if (it.id != merge.id) break_rule("a merge has a contribution for another one");
    if (!counted_.emplace(it.digest, merge.id).second) break_rule("a contribution counts twice");
  }
  check_votes(merge);
}

// Whatever happens later, a payload of a decided merge was with a quorum of the voters.
void SiteChecker::check_votes(const Merge& merge) {
  const auto before = merges_.find({merge.id.epoch, merge.id.number - 1});
  if (before == merges_.end()) return break_rule("a merge follows none");
  std::vector<SiteMember> held_all;
  for (const SiteMember& member : before->second.members) {
    const auto& whole = whole_[member];
    const auto& all = merge.contributions;
    if (std::all_of(all.begin(), all.end(), [&](const auto& it) { return whole.contains(it); })) {
      held_all.push_back(member);
    }
  }
  if (!is_site_quorum(before->second.members, held_all)) {
    break_rule("a merge was decided while no quorum had its payloads");
  }
}

void SiteChecker::applies(int site, const MergeId& held, const Merge& merge, bool has_all) {
  decided(merge);
  if (merge.founding || merge.id != held.next()) {
    break_rule(fmt::format("site {} applies a merge that does not follow its state", site));
  }
  if (!has_all) break_rule("a site applies a merge without all payloads");
}

void SiteChecker::adopts(int site, const MergeId& held, std::uint64_t hash, const Merge& merge) {
  decided(merge);
  if (!merge.founding || merge.id <= held || merge.id.number != held.number || merge.hash != hash) {
    break_rule(fmt::format("site {} adopts a founding that is not its state", site));
  }
}

void SiteChecker::holds(int site, const MergeId& id, std::uint64_t hash) {
  const auto [known, is_new] = hashes_.emplace(id, hash);
  if (!is_new && known->second != hash) {
    break_rule(fmt::format("site {} has another state after one merge", site));
  }
  const auto merge = merges_.find(id);
  if (merge != merges_.end() && merge->second.founding && merge->second.hash != hash) {
    break_rule("a founding has another state than its founder");
  }
}

}  // namespace dlaunch::sim
