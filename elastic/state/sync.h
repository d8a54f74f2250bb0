// How the members of a round come to hold the same commit. Three sources, in this order: what they
// have in memory, what is on disk, and the start. Never less than what is known to have been there:
// if shards or snapshots are lost the answer is an error.
#pragma once

#include "elastic/state/copies.h"
#include "elastic/state/plan.h"
#include "elastic/state/registry.h"
#include "elastic/state/rounds.h"

namespace dlaunch {

// What a rank brings to it.
struct Store {
  Rounds& rounds;
  Registry& registry;
  Copies& copies;
  int replicas = 1;
  // Of snapshots; empty: none are made.
  std::string folder = {};

  Cast cast() const { return {rounds.size(), replicas, registry.sharded()}; }
};

// Collective. What the members have registered, and `terms`, must be the same on all.
Result<void> check_registered(const Store& store, const std::string& terms);

// Collective. Returns the copy that all members now hold, cut for them; it has been restored into
// the registered memory. If it fails what was held before is still held, as far as it was needed.
Result<Copy*> sync_state(const Store& store);

// Collective. Sizes of all ranks' shards, as they are in the registered memory.
Result<std::vector<std::uint64_t>> gather_shard_sizes(const Store& store);

// The registered memory becomes the objects of a copy that is being made.
Result<void> capture(const Store& store, Copy& copy);
// Collective, if there is sharded memory. Gives this rank's shard to its keepers, and takes those
// that it keeps itself.
Result<void> share_shards(const Store& store, Copy& copy, std::span<const std::uint64_t> sizes);
// Collective, of all that hold this copy as share_shards() left it: the last of a round in which
// nobody was lost. Gives every rank every shard, so that any of them may leave, and those that stay
// can cut the shards for another number of ranks.
Result<void> hand_over(const Store& store, Copy& copy);
// The copy becomes the registered memory.
Result<void> restore(const Store& store, Copy& copy);

}  // namespace dlaunch
