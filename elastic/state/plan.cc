#include "elastic/state/plan.h"

#include <functional>
#include <utility>

namespace dlaunch {
namespace {

using Choices = std::map<CopyId, Choice, std::greater<>>;  // newest first

Choices gather(std::span<const std::vector<Holding>> by_rank) {
  Choices choices;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank) {
    for (const auto& holding : by_rank[static_cast<std::size_t>(rank)]) {
      auto& choice = choices[holding.id];
      choice.id = holding.id;
      choice.base = holding.base;
      choice.world = holding.world;
      for (const auto& [id, bytes] : holding.objects) {
        auto& object = choice.objects[id];
        object.bytes = bytes;
        object.holders.push_back(rank);
      }
    }
  }
  return choices;
}

// The first object that no rank holds.
std::optional<ObjectId> lacking(const Choice& choice, bool sharded) {
  const ObjectId end = sharded ? shard_of(choice.world) : kReplicated + 1;
  for (ObjectId id = kReplicated; id < end; ++id) {
    if (!choice.objects.contains(id)) return id;
  }
  return std::nullopt;
}

// Fills sources and differing, and decides which content is right.
void settle(Pull& pull, const Choice::Object& object, std::span<const PieceTables> tables) {
  std::map<PieceTable, std::vector<int>> camps;
  for (const int rank : object.holders) {
    const auto& of_rank = tables[static_cast<std::size_t>(rank)];
    if (const auto it = of_rank.find(pull.object); it != of_rank.end()) {
      camps[it->second].push_back(rank);
    }
  }
  for (const auto& [table, ranks] : camps) {
    const bool more = ranks.size() > pull.sources.size();
    const bool first = ranks.size() == pull.sources.size() && ranks[0] < pull.sources[0];
    if (!more && !first) continue;
    pull.table = table;
    pull.sources = ranks;
  }
  for (const int rank : object.holders) {
    if (!std::ranges::binary_search(pull.sources, rank)) pull.differing.push_back(rank);
  }
}

}  // namespace

std::optional<Choice> choose(std::span<const std::vector<Holding>> by_rank, bool sharded) {
  for (auto& [id, choice] : gather(by_rank)) {
    if (!lacking(choice, sharded)) return std::move(choice);
  }
  return std::nullopt;
}

std::vector<Version> complete_versions(std::span<const std::vector<Holding>> by_rank,
                                       bool sharded) {
  std::vector<Version> versions;
  for (const auto& [id, choice] : gather(by_rank)) {
    if (lacking(choice, sharded)) continue;
    const bool known = !versions.empty() && versions.back() == id.version;  // in another cut
    if (!known) versions.push_back(id.version);
  }
  return versions;
}

std::string shortfall(std::span<const std::vector<Holding>> by_rank, bool sharded) {
  for (const auto& [id, choice] : gather(by_rank)) {
    if (const auto object = lacking(choice, sharded)) {
      return to_text(id.version) + " lacks " + to_text(*object, choice.world);
    }
  }
  return {};
}

std::vector<int> replica_holders(int rank, int size, int replicas) {
  std::vector<int> ranks;
  for (int k = 1; k <= std::min(replicas, size - 1); ++k) ranks.push_back((rank + k) % size);
  return ranks;
}

std::vector<ObjectId> Cast::needed(int rank, int world) const {
  std::vector<ObjectId> objects{kReplicated};
  if (!sharded) return objects;
  for (int owner = 0; owner < world; ++owner) {
    const auto kept_by = replica_holders(owner, world, replicas);
    const bool kept = std::ranges::find(kept_by, rank) != kept_by.end();
    if (world != size || owner == rank || kept) objects.push_back(shard_of(owner));
  }
  return objects;
}

Result<std::vector<Pull>> plan_pulls(const Choice& choice, std::span<const PieceTables> tables,
                                     const Cast& cast) {
  std::map<ObjectId, std::vector<int>> wanted;
  for (int rank = 0; rank < cast.size; ++rank) {
    for (const ObjectId object : cast.needed(rank, choice.world)) wanted[object].push_back(rank);
  }
  std::vector<Pull> pulls;
  for (const auto& [id, ranks] : wanted) {
    const auto& object = choice.objects.at(id);
    Pull pull{.object = id, .bytes = object.bytes};
    settle(pull, object, tables);
    if (pull.sources.empty() || pull.table.size() != piece_count(pull.bytes)) {
      return Error{.code = Errc::protocol,
                   .what = "ranks sent different sizes of " + to_text(id, choice.world)};
    }
    for (const int rank : ranks) {
      if (!std::ranges::binary_search(pull.sources, rank)) pull.receivers.push_back(rank);
    }
    pulls.push_back(std::move(pull));
  }
  return pulls;
}

std::vector<Piece> pieces_of(int rank, std::span<const Pull> pulls) {
  std::vector<Piece> mine;
  for (std::size_t p = 0; p < pulls.size(); ++p) {
    const Pull& pull = pulls[p];
    for (std::uint64_t index = 0; index < pull.table.size(); ++index) {
      for (std::size_t r = 0; r < pull.receivers.size(); ++r) {
        const int source = pull.sources[(index + r) % pull.sources.size()];
        const int receiver = pull.receivers[r];
        if (source == rank || receiver == rank) mine.push_back({p, index, source, receiver});
      }
    }
  }
  return mine;
}

std::vector<Piece> again(std::vector<Piece> damaged, std::span<const Pull> pulls) {
  for (auto& piece : damaged) {
    const auto& sources = pulls[piece.pull].sources;
    const auto it = std::ranges::find(sources, piece.source);
    piece.source = it + 1 < sources.end() ? it[1] : sources.front();
  }
  return damaged;
}

std::uint64_t piece_count(std::uint64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

}  // namespace dlaunch
