#include "elastic/state/sync.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "elastic/state/by_gpu.h"
#include "elastic/state/pull.h"
#include "elastic/state/snapshot_file.h"

namespace dlaunch {
namespace {

Result<void> make_room(Copy& copy, ObjectId object, std::size_t bytes) {
  if (copy.make_room(object, bytes)) return {};
  return Error{.code = Errc::io,
               .what = fmt::format("no memory for a copy of the state ({} bytes)", bytes)};
}

template <class Part>
Result<std::vector<Part>> gather_parts(Rounds& rounds, const Part& mine,
                                       Result<Part> (*decode)(std::string_view)) {
  const auto texts = gather_texts(rounds, encode(mine));
  if (!texts) return texts.error();
  std::vector<Part> all;
  for (const auto& text : *texts) {
    auto part = decode(text);
    if (!part) return part.error();
    all.push_back(std::move(*part));
  }
  return all;
}

auto gather_holdings(Rounds& rounds, const std::vector<Holding>& mine) {
  return gather_parts(rounds, mine, decode_holdings);
}

Result<void> restore_shard(const Contribution& contribution, Copy& copy) {
  if (!contribution.registry.sharded()) return {};
  std::vector<ConstBytes> shards;
  for (int owner = 0; owner < copy.world; ++owner) {
    const ObjectId object = shard_of(owner);
    shards.push_back(copy.has(object) ? ConstBytes(copy.bytes(object)) : ConstBytes());
  }
  return contribution.registry.restore_shard(shards, contribution.rounds.rank(),
                                             contribution.rounds.size());
}

// One attempt of a round's members to agree on a copy and have it.
class Sync {
 public:
  explicit Sync(const Contribution& contribution)
      : contribution_(contribution), rounds_(contribution.rounds) {}

  // All members have this copy, with the parts that they need themselves. Gives them the parts that
  // the cast needs.
  Result<void> complete(Copy& copy) {
    const auto holdings = gather_holdings(rounds_, {copy.holding()});
    if (!holdings) return holdings.error();
    const auto choice = choose(*holdings, true);
    if (!choice) return Error{.code = Errc::io, .what = shortfall(*holdings, true)};
    const auto pulls = plan_for(*choice, &copy);
    if (!pulls) return pulls.error();
    if (auto r = agree(rounds_, make_rooms(copy, *choice, *pulls)); !r) return r;
    const auto place = [&](ObjectId object) { return copy.bytes(object); };
    if (auto r = pull_objects(rounds_, *pulls, place); !r) return r;
    for (auto& [id, object] : copy.objects) object.whole = true;
    return {};
  }

  Result<Copy*> run() {
    for (;;) {
      auto holdings = gather_holdings(rounds_, contribution_.copies.holdings());
      if (!holdings) return holdings.error();
      if (const auto choice = choose(*holdings, contribution_.registry.sharded()))
        return take(*choice);
      auto loaded = load();
      if (!loaded) return loaded.error();
      if (*loaded) continue;
      const std::string lost = shortfall(*holdings, contribution_.registry.sharded());
      if (!lost.empty()) {
        return Error{.code = Errc::io,
                     .what = "state is lost: " + lost + ", and there is no snapshot"};
      }
      if (auto r = begin(); !r) return r.error();
    }
  }

  // As in Synced.
  std::vector<Version> saved() const { return saved_; }

 private:
  // The start: rank 0's replicated memory and all ranks' shards become a copy.
  Result<void> begin() {
    Copy& copy = contribution_.copies.take_other_than(nullptr);
    copy.id = {.version = {rounds_.round(), 0}, .layout = rounds_.round()};
    copy.base = 0;
    copy.world = rounds_.size();
    copy.objects.clear();
    const auto captured = capture(contribution_, copy);
    if (rounds_.rank() != 0) copy.objects.erase(kReplicated);
    copy.committed = !copy.objects.empty();
    return agree(rounds_, captured);
  }

  // -- The copy is in some ranks' memory.
  Result<std::vector<Pull>> plan_for(const Choice& choice, const Copy* copy) {
    PieceTables mine;
    if (copy != nullptr) {
      for (const auto& [id, object] : copy->objects) {
        if (object.whole) mine[id] = piece_table(object.bytes);
      }
    }
    const auto tables = gather_parts(rounds_, mine, decode_tables);
    if (!tables) return tables.error();
    return plan_pulls(choice, *tables, contribution_.cast());
  }

  Result<Copy*> take(const Choice& choice) {
    Copy* copy = contribution_.copies.find(choice.id);
    const auto pulls = plan_for(choice, copy);
    if (!pulls) return pulls.error();
    if (copy == nullptr) copy = &fresh_copy(choice);
    if (auto r = agree(rounds_, make_rooms(*copy, choice, *pulls)); !r) return r.error();
    const auto filled = give_by_gpus(contribution_, *pulls, *copy);
    if (!filled) return filled.error();
    const auto place = [&](ObjectId object) { return copy->bytes(object); };
    if (auto r = pull_objects(rounds_, *pulls, place, *filled); !r) return r.error();
    for (auto& [id, object] : copy->objects) object.whole = true;
    copy->committed = true;
    const bool in_memory = *filled && (*filled)->in_memory;
    const auto restored =
        in_memory ? restore_shard(contribution_, *copy) : restore(contribution_, *copy);
    if (auto r = agree(rounds_, restored); !r) return r.error();
    if (choice.world != rounds_.size() && contribution_.registry.sharded()) return cut_anew(*copy);
    copy->forget_all_but(contribution_.cast().needed(rounds_.rank(), choice.world));
    return copy;
  }

  Copy& fresh_copy(const Choice& choice) {
    Copy& copy =
        contribution_.copies.take_other_than(contribution_.copies.newest_before(choice.id));
    copy.id = choice.id;
    copy.base = choice.base;
    copy.world = choice.world;
    for (auto& [id, object] : copy.objects) object.whole = false;
    return copy;
  }

  Result<void> make_rooms(Copy& copy, const Choice& choice, std::span<const Pull> pulls) {
    if (choice.objects.at(kReplicated).bytes != contribution_.registry.replicated_bytes()) {
      return Error{.code = Errc::mismatch, .what = "the state of this round has a different size"};
    }
    std::vector<ObjectId> kept;
    for (const auto& [id, object] : copy.objects) {
      if (object.whole) kept.push_back(id);
    }
    const int me = rounds_.rank();
    for (const Pull& pull : pulls) {
      if (std::ranges::find(pull.receivers, me) == pull.receivers.end()) continue;
      if (std::ranges::find(pull.differing, me) != pull.differing.end()) {
        log_warn(
            "rank {}: {} at {} differs from that of {} others, rank {} among them; taking theirs",
            me, to_text(pull.object, choice.world), to_text(choice.id.version), pull.sources.size(),
            pull.sources.front());
      }
      kept.push_back(pull.object);
      if (auto r = make_room(copy, pull.object, pull.bytes); !r) return r;
    }
    copy.forget_all_but(kept);
    return {};
  }

  // The copy has been restored into shards of the new cut; they become another copy, so that the
  // old one is whole until the new one is.
  Result<Copy*> cut_anew(const Copy& old) {
    Copy& copy = contribution_.copies.take_other_than(&old);
    copy.id = {.version = old.id.version, .layout = old.base + rounds_.round()};
    copy.base = old.base;
    copy.world = rounds_.size();
    if (auto r = agree(rounds_, capture(contribution_, copy)); !r) return r.error();
    const auto sizes = gather_shard_sizes(contribution_);
    if (!sizes) return sizes.error();
    if (auto r = share_shards(contribution_, copy, *sizes); !r) return r.error();
    copy.committed = true;
    return &copy;
  }

  // -- The copy is on disk. True: parts of one are in memory now.
  Result<bool> load() {
    if (contribution_.folder.empty()) return false;
    SnapshotList list;
    if (auto r = agree(rounds_, look(list)); !r) return r.error();
    // All later commits are newer than any file, and none gets the name of one: a file that an
    // earlier job left could pass for a part of it.
    std::uint64_t base = list.last_round + 1;
    if (auto r = rounds_.maximum({&base, 1}); !r) return r.error();
    const auto holdings = gather_holdings(rounds_, on_disk(list, base));
    if (!holdings) return holdings.error();
    const auto choice = choose(*holdings, contribution_.registry.sharded());
    if (choice) {
      if (auto r = agree(rounds_, read(list, *choice)); !r) return r.error();
      saved_ = complete_versions(*holdings, contribution_.registry.sharded());
      return true;
    }
    std::uint64_t files = list.intact.size() + list.damaged.size() + damaged_.size();
    if (auto r = rounds_.maximum({&files, 1}); !r) return r.error();
    if (files == 0) return false;
    const std::string lost = shortfall(*holdings, contribution_.registry.sharded());
    return Error{
        .code = Errc::io,
        .what = fmt::format("no snapshot in {} is complete{}{}; to start over, empty the folder",
                            contribution_.folder, lost.empty() ? "" : ": ", lost)};
  }

  static std::vector<Holding> on_disk(const SnapshotList& list, std::uint64_t base) {
    std::map<CopyId, Holding> found;
    for (const auto& s : list.intact) {
      auto& holding = found[s.id];
      holding.id = s.id;
      holding.base = base;
      holding.world = s.world;
      holding.objects[s.object] = s.bytes;
    }
    std::vector<Holding> all;
    all.reserve(found.size());
    for (auto& [id, holding] : found) all.push_back(std::move(holding));
    return all;
  }

  // Lists the folder without the damaged snapshots, each of which is reported once.
  Result<void> look(SnapshotList& list) {
    auto listed = list_snapshots(contribution_.folder);
    if (!listed) return listed.error();
    list = std::move(*listed);
    std::erase_if(list.intact, [&](const Snapshot& s) { return damaged_.contains(s.path); });
    for (const auto& what : list.damaged) {
      if (said_.insert(what).second) log_warn("rank {}: {}", rounds_.rank(), what);
    }
    const std::string ours = contribution_.registry.describe();
    for (const auto& s : list.intact) {
      const auto lines = Registry::difference(s.description, ours);
      if (!lines) continue;
      return Error{.code = Errc::mismatch,
                   .what = fmt::format("snapshot {} belongs to another state: it has {}, the "
                                       "program {}; to start over, use another folder",
                                       s.path, lines->first, lines->second)};
    }
    return {};
  }

  // Reads what this rank needs of the choice, and objects held only by ranks that do not need them.
  Result<void> read(const SnapshotList& list, const Choice& choice) {
    const auto cast = contribution_.cast();
    contribution_.copies.forget_all();
    Copy& copy = contribution_.copies.take_other_than(nullptr);
    copy.id = choice.id;
    copy.base = choice.base;
    copy.world = choice.world;
    copy.objects.clear();
    for (const auto& s : list.intact) {
      if (s.id != choice.id || !is_reader(choice, s.object, cast)) continue;
      if (auto r = make_room(copy, s.object, s.bytes); !r) return r;
      const auto done = read_snapshot(s, copy.bytes(s.object));
      copy.objects[s.object].whole = done.has_value();
      if (done) continue;
      log_warn("rank {}: {}", rounds_.rank(), done.error().what);
      damaged_.insert(s.path);
    }
    std::erase_if(copy.objects, [](const auto& item) { return !item.second.whole; });
    copy.committed = !copy.objects.empty();
    return {};
  }

  bool is_reader(const Choice& choice, ObjectId object, const Cast& cast) const {
    const auto& holders = choice.objects.at(object).holders;
    const auto needs = [&](int rank) {
      const auto needed = cast.needed(rank, choice.world);
      return std::ranges::find(needed, object) != needed.end();
    };
    const bool by_need = std::ranges::any_of(holders, needs);
    return by_need ? needs(rounds_.rank()) : holders.front() == rounds_.rank();
  }

  const Contribution& contribution_;
  Rounds& rounds_;
  std::set<std::string> damaged_;  // files found to have damaged content
  std::set<std::string> said_;
  std::vector<Version> saved_;
};

}  // namespace

Result<void> check_registered(const Contribution& contribution, const std::string& terms) {
  const auto all = gather_texts(contribution.rounds, contribution.registry.describe() + terms);
  if (!all) return all.error();
  if (const auto difference = Registry::difference(*all)) {
    return Error{.code = Errc::mismatch, .what = *difference};
  }
  return {};
}

Result<Synced> sync_state(const Contribution& contribution) {
  Sync sync(contribution);
  const auto copy = sync.run();
  if (!copy) return copy.error();
  return Synced{.copy = *copy, .saved = sync.saved()};
}

Result<std::vector<std::uint64_t>> gather_shard_sizes(const Contribution& contribution) {
  const std::uint64_t mine = contribution.registry.shard_bytes();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(contribution.rounds.size()));
  if (auto r = contribution.rounds.gather({&mine, 1}, sizes); !r) return r.error();
  return sizes;
}

Result<void> capture(const Contribution& contribution, Copy& copy) {
  const Registry& registry = contribution.registry;
  if (auto r = make_room(copy, kReplicated, registry.replicated_bytes()); !r) return r;
  if (auto r = registry.capture_replicated(copy.bytes(kReplicated)); !r) return r;
  copy.objects[kReplicated].whole = true;
  if (!registry.sharded()) return {};
  const ObjectId own = shard_of(contribution.rounds.rank());
  if (auto r = make_room(copy, own, registry.shard_bytes()); !r) return r;
  if (auto r = registry.capture_shard(copy.bytes(own)); !r) return r;
  copy.objects[own].whole = true;
  return {};
}

Result<void> share_shards(const Contribution& contribution, Copy& copy,
                          std::span<const std::uint64_t> sizes) {
  if (!contribution.registry.sharded()) return {};
  Rounds& rounds = contribution.rounds;
  const int me = rounds.rank();
  copy.forget_all_but(contribution.cast().needed(me, rounds.size()));
  std::vector<std::unique_ptr<Transfer>> transfers;
  const auto add = [&](Rounds::Started started) -> Result<void> {
    if (!started) return started.error();
    transfers.push_back(std::move(*started));
    return {};
  };
  for (int owner = 0; owner < rounds.size(); ++owner) {
    const auto kept_by = replica_holders(owner, rounds.size(), contribution.replicas);
    if (std::ranges::find(kept_by, me) == kept_by.end()) continue;
    const ObjectId object = shard_of(owner);
    if (auto r = make_room(copy, object, sizes[static_cast<std::size_t>(owner)]); !r) return r;
    if (auto r = add(rounds.receive(copy.bytes(object), owner)); !r) return r;
  }
  for (const int holder : replica_holders(me, rounds.size(), contribution.replicas)) {
    if (auto r = add(rounds.send(copy.bytes(shard_of(me)), holder)); !r) return r;
  }
  for (auto& transfer : transfers) {
    if (auto r = transfer->wait(); !r) return r;
  }
  for (auto& [id, object] : copy.objects) object.whole = true;
  return {};
}

Result<void> hand_over(const Contribution& contribution, Copy& copy) {
  Contribution everybody = contribution;
  everybody.replicas = contribution.rounds.size();
  return Sync(everybody).complete(copy);
}

Result<void> restore(const Contribution& contribution, Copy& copy) {
  if (auto r = contribution.registry.restore_replicated(copy.bytes(kReplicated)); !r) return r;
  return restore_shard(contribution, copy);
}

}  // namespace dlaunch
