#include "elastic/state/plan.h"

#include <set>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

Holding holding(Version version, int world, std::vector<ObjectId> objects,
                std::uint64_t layout = 1) {
  Holding h{.id = {version, layout}, .base = 0, .world = world, .objects = {}};
  for (const ObjectId object : objects) h.objects[object] = 10;
  return h;
}

}  // namespace

TEST_CASE("plan: a later round beats a higher number, and without a holder there is no commit") {
  const std::vector<std::vector<Holding>> by_rank = {
      {holding({2, 7}, 3, {0}), holding({2, 6}, 3, {0})}, {}, {holding({3, 5}, 3, {0})}};
  const auto choice = choose(by_rank, false);
  REQUIRE(choice);
  CHECK(choice->id.version == Version{3, 5});
  CHECK(choice->objects.at(kReplicated).holders == std::vector{2});
  CHECK_FALSE(choose(std::vector<std::vector<Holding>>(3), false));
}

TEST_CASE("plan: a copy counts only if all its shards are there, else the one before it") {
  const auto newer = [](std::vector<ObjectId> o) { return holding({1, 8}, 3, std::move(o)); };
  const auto older = [](std::vector<ObjectId> o) { return holding({1, 7}, 3, std::move(o)); };
  // Rank 2 has died during commit 8, before its shard had left.
  const std::vector<std::vector<Holding>> by_rank = {
      {newer({0, shard_of(0)}), older({0, shard_of(0), shard_of(2)})},
      {newer({0, shard_of(1), shard_of(0)}), older({0, shard_of(1), shard_of(0)})}};
  CHECK(choose(by_rank, true)->id.version == Version{1, 7});
  CHECK(choose(by_rank, false)->id.version == Version{1, 8});
  CHECK(complete_versions(by_rank, true) == std::vector<Version>{{1, 7}});
  CHECK(complete_versions(by_rank, false).front() == Version{1, 8});
  CHECK(shortfall(by_rank, true) == "commit 8 of round 1 lacks the shard of rank 2 of 3");
  CHECK(choose(by_rank, true)->objects.at(shard_of(0)).holders == std::vector{0, 1});
}

TEST_CASE("plan: the later cut of the same commit is preferred") {
  const std::vector<std::vector<Holding>> by_rank = {
      {holding({1, 8}, 2, {0, 1, 2}, 1), holding({1, 8}, 1, {0, 1}, 2)}};
  CHECK(choose(by_rank, true)->world == 1);
  CHECK(complete_versions(by_rank, true) == std::vector<Version>{{1, 8}});
}

TEST_CASE("plan: every shard survives as many neighbouring deaths as it has replicas") {
  for (int world = 1; world <= 6; ++world) {
    for (int replicas = 0; replicas <= 3; ++replicas) {
      const Cast cast{.size = world, .replicas = replicas, .sharded = true};
      for (int first = 0; first < world; ++first) {
        std::set<ObjectId> left;
        for (int rank = 0; rank < world; ++rank) {
          const bool dead = (rank - first + world) % world < std::min(replicas, world - 1);
          if (dead) continue;
          for (const ObjectId object : cast.needed(rank, world)) left.insert(object);
        }
        CHECK(left.size() == static_cast<std::size_t>(world) + 1);
      }
    }
  }
}

TEST_CASE("plan: a change of the number of ranks needs all shards, if there are any") {
  CHECK(Cast{3, 1, true}.needed(2, 4) == std::vector<ObjectId>{0, 1, 2, 3, 4});
  CHECK(Cast{4, 1, true}.needed(0, 4) == std::vector<ObjectId>{0, 1, 4});
  CHECK(Cast{3, 1, false}.needed(2, 4) == std::vector<ObjectId>{0});
}

TEST_CASE("plan: the majority of holders is right, or the side of the lowest rank") {
  const Choice choice{.id = {}, .base = 0, .world = 5, .objects = {{0, {10, {0, 1, 2, 3}}}}};
  const auto tables = [](std::vector<std::uint32_t> sums) {
    std::vector<PieceTables> all;
    for (const auto sum : sums) all.push_back({{0, {sum}}});
    all.emplace_back();  // rank 4 has nothing
    return all;
  };
  const Cast cast{.size = 5};
  auto pulls = plan_pulls(choice, tables({9, 1, 1, 1}), cast);
  REQUIRE(pulls);
  CHECK(pulls->at(0).sources == std::vector{1, 2, 3});
  CHECK(pulls->at(0).receivers == std::vector{0, 4});
  CHECK(pulls->at(0).differing == std::vector{0});
  pulls = plan_pulls(choice, tables({1, 9, 9, 9}), cast);
  CHECK(pulls->at(0).sources == std::vector{1, 2, 3});
  pulls = plan_pulls(choice, tables({9, 1, 9, 1}), cast);
  CHECK(pulls->at(0).sources == std::vector{0, 2});
  CHECK(pulls->at(0).receivers == std::vector{1, 3, 4});
  CHECK(plan_pulls(choice, std::vector<PieceTables>(5), cast).error().code == Errc::protocol);
}

TEST_CASE("plan: each receiver gets each piece once, from all sources alike") {
  std::vector<Pull> pulls(2);
  pulls[0] = {.object = 0,
              .bytes = 9 * kPieceBytes + 1,
              .table = PieceTable(10),
              .sources = {1, 3},
              .receivers = {0, 2},
              .differing = {}};
  pulls[1] = {.object = 1,
              .bytes = 1,
              .table = PieceTable(1),
              .sources = {0},
              .receivers = {3},
              .differing = {}};
  std::map<int, int> sent;
  std::set<std::tuple<std::size_t, std::uint64_t, int>> received;
  std::size_t sends = 0;
  for (int rank = 0; rank < 4; ++rank) {
    std::uint64_t bytes = 0;
    for (const Piece& piece : pieces_of(rank, pulls)) {
      CHECK((piece.source == rank) != (piece.receiver == rank));
      if (piece.source == rank) ++sent[rank], ++sends;
      if (piece.receiver != rank) continue;
      CHECK(received.insert({piece.pull, piece.index, rank}).second);
      bytes += piece.bytes(pulls[piece.pull]);
    }
    if (rank == 0) CHECK(bytes == pulls[0].bytes);
  }
  CHECK(received.size() == 21);
  CHECK(sends == 21);
  CHECK(sent == std::map<int, int>{{0, 1}, {1, 10}, {3, 10}});
  // From another source, where there is one.
  CHECK(again({{0, 4, 1, 0}}, pulls).front().source == 3);
  CHECK(again({{0, 4, 3, 0}}, pulls).front().source == 1);
  CHECK(again({{1, 0, 0, 3}}, pulls).front().source == 0);
}

TEST_CASE("plan: messages of ranks are read as written, and malformed ones are refused") {
  const std::vector<Holding> mine = {holding({2, 7}, 3, {0, 2}), holding({2, 6}, 3, {})};
  auto back = decode_holdings(encode(mine));
  REQUIRE(back);
  REQUIRE(back->size() == 2);
  CHECK(back->at(0).id == mine[0].id);
  CHECK(back->at(0).objects == mine[0].objects);
  const PieceTables tables = {{0, {1, 2, 3}}, {4, {}}};
  CHECK(*decode_tables(encode(tables)) == tables);
  const std::string text = encode(mine);
  for (std::size_t size = 1; size < text.size(); ++size) {
    const auto cut = decode_holdings(text.substr(0, size));
    CHECK((!cut || cut->size() < 2));
  }
  CHECK_FALSE(decode_tables(std::string(12, '\xff')));
  CHECK_FALSE(decode_holdings(encode(std::vector{holding({1, 1}, 2, {3})})));
}
