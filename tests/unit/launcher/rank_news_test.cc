#include "launcher/node/watch/rank_news.h"

#include <doctest/doctest.h>

#include "launcher/wire/node_message.h"
#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Workers = std::vector<RankNews::Worker>;

// In or behind a collective of all ranks since so long after the start.
RankNews::Worker worker(int rank, std::uint64_t seq, bool inside, Duration since) {
  return {.slot = rank,
          .rank = rank,
          .round = 1,
          .pid = 100 + rank,
          .state = ProcessState::sleeping,
          .left = false,
          .positions = {{0, seq, 0, inside, kStart + since}}};
}

}  // namespace

TEST_CASE("a rank that moves on is reported once, and costs nothing after that") {
  RankNews news(1s);
  std::size_t told = 0;
  for (int i = 0; i < 100; ++i) {
    const auto at = 200ms * i;
    const auto seen = news.look(
        kStart + at,
        {worker(0, static_cast<std::uint64_t>(i) + 1, true, at), worker(1, 1, false, 0s)});
    if (i == 0) CHECK(seen.ranks.size() == 2);
    for (const auto& rank : seen.ranks) told += rank.rank == 0;
    if (i == 0) CHECK(seen.ranks[0].moves);
  }
  CHECK(told == 1);
}

TEST_CASE("a rank that stands still is reported once, with the time that its host has seen it so") {
  RankNews news(1s);
  // It stood so before anybody looked.
  const auto look = [&](Duration at) {
    return news.look(kStart + 10s + at, {worker(0, 7, true, 2s)}).ranks;
  };
  CHECK(look(0ms).at(0).moves);
  CHECK(look(500ms).empty());
  const auto stands = look(1s);
  REQUIRE(stands.size() == 1);
  CHECK_FALSE(stands[0].moves);
  REQUIRE(stands[0].positions.size() == 1);
  CHECK(stands[0].positions[0].seq == 7);
  CHECK(stands[0].positions[0].inside);
  CHECK(stands[0].positions[0].still == 1s);
  CHECK(look(2s).empty());
  CHECK(look(60s).empty());
  const auto moves = news.look(kStart + 80s, {worker(0, 8, true, 79s)}).ranks;
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].moves);
  CHECK(moves[0].positions.empty());
}

TEST_CASE("a worker whose stacks are being read is the same as before") {
  RankNews news(1s);
  auto stopped = worker(0, 7, true, 2s);
  stopped.state = ProcessState::stopped;
  auto read = stopped;
  read.state.reset();
  CHECK(news.look(kStart, {read}).ranks.empty());  // it may be ending
  CHECK(news.look(kStart + 10s, {stopped}).ranks.size() == 1);
  CHECK(news.look(kStart + 11s, {stopped}).ranks.size() == 1);  // it stands
  CHECK(news.look(kStart + 12s, {read}).ranks.empty());
  CHECK(news.look(kStart + 13s, {stopped}).ranks.empty());
  read.positions[0].seq = 8;
  const auto moves = news.look(kStart + 14s, {read}).ranks;
  REQUIRE(moves.size() == 1);
  CHECK(moves[0].moves);
  CHECK(moves[0].state == ProcessState::stopped);
}

TEST_CASE("without a limit each move is reported, with the rank's position") {
  RankNews news(0s);
  (void)news.look(kStart, {worker(0, 1, true, 0s)});
  const auto moved = news.look(kStart + 200ms, {worker(0, 1, false, 100ms)}).ranks;
  REQUIRE(moved.size() == 1);
  CHECK_FALSE(moved[0].moves);
  CHECK_FALSE(moved[0].positions.at(0).inside);
  CHECK(moved[0].positions[0].still == 0s);
  CHECK(news.look(kStart + 400ms, {worker(0, 1, false, 100ms)}).ranks.empty());
}

TEST_CASE("a stopped rank is reported at once, also without a watch for hangs") {
  for (const auto limit : {Duration(1s), Duration::max()}) {
    RankNews news(limit);
    (void)news.look(kStart, {worker(0, 1, true, 0s)});
    auto stopped = worker(0, 1, true, 0s);
    stopped.state = ProcessState::stopped;
    const auto told = news.look(kStart + 10ms, {stopped}).ranks;
    REQUIRE(told.size() == 1);
    CHECK(told[0].state == ProcessState::stopped);
    CHECK(news.look(kStart + 20ms, {stopped}).ranks.empty());
    CHECK(news.look(kStart + 30ms, {worker(0, 1, true, 0s)}).ranks.size() == 1);
    // Sleeping and running in turn is no news.
    auto runs = worker(0, 1, true, 0s);
    runs.state = ProcessState::running;
    CHECK(news.look(kStart + 40ms, {runs}).ranks.empty());
  }
}

TEST_CASE("without a limit for standing still it is not reported") {
  RankNews news(Duration::max());
  CHECK(news.look(kStart, {worker(0, 1, true, 0s)}).ranks.size() == 1);
  CHECK(news.look(kStart + 600s, {worker(0, 1, true, 0s)}).ranks.empty());
}

TEST_CASE("a worker in another round, or waiting for it, is reported again") {
  RankNews news(1s);
  (void)news.look(kStart, {worker(0, 5, true, 0s)});
  auto left = worker(0, 5, false, 0s);
  left.left = true;
  const auto told = news.look(kStart + 200ms, {left}).ranks;
  REQUIRE(told.size() == 1);
  CHECK(told[0].left);
  CHECK(news.look(kStart + 20s, {left}).ranks.empty());
  auto next = worker(0, 5, false, 0s);
  next.round = 2;
  CHECK(news.look(kStart + 21s, {next}).ranks.at(0).round == 2);
  next.pid = 999;
  CHECK(news.look(kStart + 22s, {next}).ranks.at(0).pid == 999);
  CHECK(news.look(kStart + 23s, {}).ranks.empty());
}

TEST_CASE("the report of a rank that stands still says once that it sleeps uninterruptibly") {
  RankNews news(1s);
  auto blocked = worker(0, 1, true, 0s);
  blocked.state = ProcessState::uninterruptible;
  (void)news.look(kStart, {worker(0, 1, true, 0s)});
  CHECK(news.look(kStart + 500ms, {blocked}).ranks.empty());
  CHECK(news.look(kStart + 1s, {blocked}).ranks.at(0).state == ProcessState::uninterruptible);
  std::size_t told = 0;
  for (int i = 1; i <= 50; ++i) {
    const auto now = kStart + 1s + 200ms * i;
    told += news.look(now, {i % 2 == 0 ? blocked : worker(0, 1, true, 0s)}).ranks.size();
  }
  CHECK(told <= 10);
}

// 125 hosts of eight ranks, with --hang-timeout 1m: hosts tell what has stood for 7.5 s.
TEST_CASE("a thousand ranks that stop and go cost a few kilobytes a second at the most") {
  RankNews news(7500ms);
  std::size_t bytes = 0;
  constexpr int kSeconds = 600;
  for (int tick = 0; tick < 5 * kSeconds; ++tick) {
    const auto at = 200ms * tick;
    const auto step = static_cast<std::uint64_t>(tick) / 40;  // 8 s each, the worst for this limit
    Workers workers;
    for (int rank = 0; rank < 8; ++rank) {
      workers.push_back(worker(rank, step + 1, true, 8s * static_cast<int>(step)));
    }
    const auto seen = news.look(kStart + at, workers);
    if (!seen.ranks.empty()) bytes += encode(seen, kStart).size();
  }
  const std::size_t per_second = bytes * 125 / kSeconds;
  MESSAGE(per_second, " bytes a second from 1000 ranks");
  CHECK(per_second < 10'000);
}

TEST_CASE("heartbeats: the first is reported, and when they end and go on") {
  RankNews news(1s);
  const auto look = [&](Duration at, std::optional<Duration> beat) {
    RankNews::Worker now{.slot = 0, .rank = 0, .round = 1, .pid = 100, .positions = {}};
    if (beat) now.beat = kStart + *beat;
    return news.look(kStart + at, {now}).ranks;
  };
  CHECK_FALSE(look(0s, std::nullopt).at(0).beat);
  CHECK(look(200ms, std::nullopt).empty());
  CHECK(look(400ms, 400ms).at(0).beat == 0s);
  CHECK(look(800ms, 800ms).empty());
  CHECK(look(1600ms, 800ms).empty());
  CHECK(look(1800ms, 800ms).at(0).beat == 1s);
  CHECK(look(9s, 800ms).empty());
  CHECK(look(10s, 9900ms).at(0).beat == 0s);
  CHECK(look(10200ms, 10100ms).empty());
}
