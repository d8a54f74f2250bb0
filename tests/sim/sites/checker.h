// What must hold in every run of a federation, whatever fails. It sees all sites at once.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ring/sites/site_merge.h"

namespace dlaunch::sim {

// The outer state is modelled by its hash: a chain over the contributions.
std::uint64_t hash_after(std::uint64_t hash, const Merge& merge);

class SiteChecker {
 public:
  // A site has all bytes of the payload, and has checked them.
  void whole(const SiteMember& member, const Contribution& payload);
  // A site takes this merge for decided.
  void decided(const Merge& merge);
  // A site begins to apply the merge; `has_all`: the payloads are in its memory.
  void applies(int site, const MergeId& held, const Merge& merge, bool has_all);
  void adopts(int site, const MergeId& held, std::uint64_t hash, const Merge& merge);
  // A site has this state now.
  void holds(int site, const MergeId& id, std::uint64_t hash);
  void break_rule(std::string what);

  const std::string& wrong() const { return wrong_; }  // the first broken rule; "": none
  long merges() const { return static_cast<long>(merges_.size()); }
  long foundings() const { return foundings_; }

 private:
  void check_votes(const Merge& merge);

  std::map<MergeId, Merge> merges_;
  std::map<MergeId, std::uint64_t> hashes_;
  std::map<std::uint64_t, MergeId> counted_;  // by a contribution's digest: the merge that has it
  std::map<SiteMember, std::set<Contribution>> whole_;
  long foundings_ = 0;
  std::string wrong_;
};

std::string to_string(const MergeId& id);

}  // namespace dlaunch::sim
