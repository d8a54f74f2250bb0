// Brings the members of a round to the same commit. There are three sources, in this order: their
// memory, the disk, and the start. Never takes an older commit than one known to have existed: if
// shards or snapshots are lost the answer is an error.
#pragma once

#include "elastic/state/copies.h"
#include "elastic/state/plan.h"
#include "elastic/state/registry.h"
#include "elastic/state/rounds.h"

namespace dlaunch {

// A rank's contribution.
struct Contribution {
  Rounds& rounds;
  Registry& registry;
  Copies& copies;
  int replicas = 1;
  // For snapshots; empty: none.
  std::string folder = {};

  Cast cast() const { return {rounds.size(), replicas, registry.sharded()}; }
};

// Collective. The members' registrations, and `terms`, must be the same on all.
Result<void> check_registered(const Contribution& contribution, const std::string& terms);

struct Synced {
  Copy* copy = nullptr;
  std::vector<Version> saved = {};  // if it comes from the disk: the complete commits there
};

// Collective. Returns the copy that all members now hold, cut for them; it has been restored into
// the registered memory. After a failure the earlier holdings remain, as far as they were needed.
Result<Synced> sync_state(const Contribution& contribution);

// Collective. Sizes of all ranks' shards, as in the registered memory.
Result<std::vector<std::uint64_t>> gather_shard_sizes(const Contribution& contribution);

// Copies the registered memory into the objects of a new copy.
Result<void> capture(const Contribution& contribution, Copy& copy);
// Collective, if there is sharded memory. Gives this rank's shard to the ranks that hold its
// replicas, and takes the shards that it keeps for others.
Result<void> share_shards(const Contribution& contribution, Copy& copy,
                          std::span<const std::uint64_t> sizes);
// Collective, by all that hold this copy as share_shards() left it: the last copy of a round
// without a loss. Gives every rank every shard, so that any rank may leave, and the others can cut
// the shards for another number of ranks.
Result<void> hand_over(const Contribution& contribution, Copy& copy);
// Copies the copy into the registered memory.
Result<void> restore(const Contribution& contribution, Copy& copy);

}  // namespace dlaunch
