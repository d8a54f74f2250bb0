// Where the time of a job goes: every account, and that they always sum up.
#include "elastic/goodput_ledger.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "base/flight.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const TimePoint kBegin(1000s);

Span all_reduce(std::uint64_t seq, TimePoint entered, TimePoint left) {
  return {.kind = SpanKind::call, .what = 0, .seq = seq, .entered = entered, .left = left};
}

// A job whose ranks report what a test says.
struct Job {
  GoodputLedger ledger{kBegin};
  std::map<int, Duration> blocked;  // by rank

  void begin(int size, int round = 1, TimePoint at = kBegin) {
    ledger.begin_round(at, round, size);
  }
  void joined(int rank, TimePoint at, int round = 1) {
    blocked[rank] = 0s;
    report(rank, at, {}, at, round);
  }
  void report(int rank, TimePoint until, std::vector<Span> spans, TimePoint joined, int round = 1,
              int node = 0) {
    for (const Span& span : spans) {
      if (span.kind != SpanKind::background) blocked[rank] += span.left - span.entered;
    }
    ledger.take(node, {.rank = rank,
                       .round = round,
                       .until = until,
                       .joined = joined,
                       .blocked = blocked[rank],
                       .least = least_span(2),
                       .spans = std::move(spans)});
    if (rank + 1 == static_cast<int>(blocked.size())) ledger.find_waits();
  }
  Goodput finish(TimePoint at) {
    ledger.finish(at);
    return ledger.at(at);
  }
};

Duration waited_for(const Goodput::Rank& rank, int culprit, WaitCause cause = WaitCause::compute) {
  for (const auto& wait : rank.waits) {
    if (wait.culprit == culprit && wait.cause == cause) return wait.time;
  }
  return 0s;
}

Duration due_to(const std::vector<Goodput::Due>& all, int culprit) {
  for (const auto& due : all) {
    if (due.culprit == culprit) return due.time;
  }
  return 0s;
}

void check_closed(const Goodput& goodput) {
  Duration total{};
  for (const auto& rank : goodput.ranks) {
    CHECK(rank.sum() == rank.wall);
    for (const Duration part : {rank.compute, rank.transfer, rank.start}) CHECK(part >= 0s);
    total += rank.wall;
  }
  CHECK(total == goodput.total);
  CHECK(goodput.compute + goodput.transfer + goodput.start + goodput.waiting + goodput.recovery +
            goodput.lost ==
        goodput.total);
}

}  // namespace

TEST_CASE("goodput: compute, transfer, waits for the late rank, start") {
  Job job;
  job.begin(2);
  job.joined(0, kBegin + 1s);
  job.joined(1, kBegin + 2s);
  // Rank 0 enters at 4 s, rank 1 at 7 s, and both leave at 8 s.
  job.report(0, kBegin + 9s, {all_reduce(1, kBegin + 4s, kBegin + 8s)}, kBegin + 1s);
  job.report(1, kBegin + 9s, {all_reduce(1, kBegin + 7s, kBegin + 8s)}, kBegin + 2s);
  const Goodput found = job.finish(kBegin + 10s);
  check_closed(found);
  CHECK(found.sees_waits);
  REQUIRE(found.ranks.size() == 2);
  CHECK(found.ranks[0].start == 1s);
  CHECK(found.ranks[1].start == 2s);
  CHECK(waited_for(found.ranks[0], 1) == 3s);
  CHECK(found.ranks[0].transfer == 1s);
  CHECK(found.ranks[1].transfer == 1s);
  CHECK(found.ranks[1].waits.empty());
  CHECK(found.ranks[0].compute == 5s);
  CHECK(found.ranks[1].compute == 7s);
  CHECK(found.goodput() == doctest::Approx(14.0 / 20));
  REQUIRE(found.costs.size() == 1);
  CHECK(found.costs[0].rank == 1);
  CHECK(found.costs[0].sum() == 3s);
}

TEST_CASE("goodput: a failure loses the work since the last commit, and then ranks recover") {
  Job job;
  job.begin(2);
  for (const int rank : {0, 1}) job.joined(rank, kBegin);
  job.ledger.committed(kBegin + 6s);
  for (const int rank : {0, 1}) job.report(rank, kBegin + 7s, {}, kBegin);
  job.ledger.failed(kBegin + 10s, 1, false);
  job.begin(2, 2, kBegin + 11s);
  job.ledger.started(kBegin + 11s, 1);
  for (const int rank : {0, 1}) {
    job.blocked[rank] = 0s;
    job.report(rank, kBegin + 14s, {}, kBegin + 13s, 2);
  }
  const Goodput found = job.finish(kBegin + 20s);
  check_closed(found);
  for (const auto& rank : found.ranks) {
    CHECK(due_to(rank.lost, 1) == 4s);
    CHECK(due_to(rank.recovery, 1) == 3s);
    CHECK(rank.compute == 13s);
  }
  REQUIRE(found.costs.size() == 1);
  CHECK(found.costs[0].lost == 8s);
  CHECK(found.costs[0].recovery == 6s);
}

TEST_CASE("goodput: without commits the whole attempt is lost, and waits in it are, too") {
  Job job;
  job.begin(2);
  for (const int rank : {0, 1}) job.joined(rank, kBegin + 1s);
  job.report(0, kBegin + 6s, {all_reduce(1, kBegin + 2s, kBegin + 5s)}, kBegin + 1s);
  job.report(1, kBegin + 6s, {all_reduce(1, kBegin + 5s, kBegin + 5s)}, kBegin + 1s);
  job.ledger.failed(kBegin + 9s, 0, false);
  const Goodput found = job.finish(kBegin + 10s);
  check_closed(found);
  CHECK(found.goodput() == 0);
  CHECK(found.waiting == 0s);
  for (const auto& rank : found.ranks) {
    CHECK(due_to(rank.lost, 0) == 8s);
    CHECK(due_to(rank.recovery, 0) == 1s);
    CHECK(rank.start == 1s);
  }
}

TEST_CASE("goodput: a state with which a member asks for the next round was not lost") {
  Job job;
  job.begin(2);
  for (const int rank : {0, 1}) job.joined(rank, kBegin);
  job.report(0, kBegin + 6s, {all_reduce(1, kBegin + 2s, kBegin + 5s)}, kBegin);
  job.report(1, kBegin + 6s, {all_reduce(1, kBegin + 4s, kBegin + 5s)}, kBegin);
  job.ledger.failed(kBegin + 6s, 1, false);
  CHECK(job.ledger.at(kBegin + 7s).lost == 12s);
  job.ledger.kept();
  job.begin(2, 2, kBegin + 8s);
  const Goodput found = job.finish(kBegin + 8s);
  check_closed(found);
  CHECK(found.lost == 0s);
  CHECK(found.recovery == 4s);
  CHECK(waited_for(found.ranks[0], 1) == 2s);
  CHECK(found.ranks[0].transfer == 1s);
  CHECK(found.ranks[1].compute == 5s);
}

TEST_CASE("goodput: an independent task that fails takes no other along") {
  Job job;
  job.begin(2);
  for (const int rank : {0, 1}) job.ledger.started(kBegin, rank);
  job.ledger.failed(kBegin + 4s, 1, true);
  job.ledger.started(kBegin + 5s, 1);
  job.ledger.done(kBegin + 6s, 0);
  job.ledger.done(kBegin + 9s, 1);
  const Goodput found = job.finish(kBegin + 9s);
  check_closed(found);
  CHECK_FALSE(found.sees_waits);
  CHECK(found.ranks[0].compute == 6s);
  CHECK(waited_for(found.ranks[0], 1) == 3s);  // for the rank that ended last
  CHECK(due_to(found.ranks[1].lost, 1) == 4s);
  CHECK(due_to(found.ranks[1].recovery, 1) == 1s);
  CHECK(found.ranks[1].compute == 4s);
}

TEST_CASE("goodput: a process that has not joined yet does not work") {
  Job job;
  job.begin(1);
  job.ledger.started(kBegin + 1s, 0);
  CHECK(job.ledger.at(kBegin + 5s).compute == 4s);  // perhaps it never uses libdlring
  job.report(0, kBegin + 8s, {}, kBegin + 7s);
  const Goodput found = job.finish(kBegin + 9s);
  check_closed(found);
  CHECK(found.start == 7s);
  CHECK(found.compute == 2s);
}

TEST_CASE("goodput: a job that shrinks closes the books of the ranks that leave") {
  Job job;
  job.begin(3);
  for (const int rank : {0, 1, 2}) job.joined(rank, kBegin);
  job.begin(2, 2, kBegin + 4s);
  for (const int rank : {0, 1}) {
    job.blocked[rank] = 0s;
    job.report(rank, kBegin + 6s, {}, kBegin + 5s, 2);
  }
  job.begin(3, 3, kBegin + 8s);
  const Goodput found = job.finish(kBegin + 10s);
  check_closed(found);
  REQUIRE(found.ranks.size() == 3);
  CHECK(found.ranks[2].wall == 6s);  // 4 s, and 2 s
  CHECK(found.ranks[2].start == 2s);
  CHECK(due_to(found.ranks[0].recovery, -1) == 3s);
  CHECK(found.costs.empty());
}

TEST_CASE("goodput: the causes that are known") {
  Job job;
  job.begin(4);
  for (int rank = 0; rank < 4; ++rank) job.joined(rank, kBegin);
  const auto enter = [&](std::uint64_t seq, TimePoint leave, const std::vector<Span>& spans) {
    for (int rank = 0; rank < 4; ++rank) {
      Span span = spans[static_cast<std::size_t>(rank)];
      span.seq = seq;
      span.left = leave;
      job.report(rank, leave, {span}, kBegin, 1, rank / 2);
    }
  };
  const auto at = [](Duration since) { return all_reduce(0, kBegin + since, {}); };
  Span collects = at(4s), reads = at(14s);
  collects.gc = 2s;
  reads.input = 3s;
  enter(1, kBegin + 5s, {at(1s), at(1s), at(1s), collects});
  enter(2, kBegin + 15s, {at(11s), at(11s), at(11s), reads});
  enter(3, kBegin + 25s, {at(21s), at(21s), at(24s), at(24s)});  // both ranks of host 1
  const Goodput found = job.finish(kBegin + 30s);
  check_closed(found);
  CHECK(waited_for(found.ranks[0], 3, WaitCause::gc) == 3s);
  CHECK(waited_for(found.ranks[0], 3, WaitCause::input) == 3s);
  CHECK(waited_for(found.ranks[0], 2, WaitCause::host) == 3s);
}

TEST_CASE("goodput: a wait that is under way is no good time, also before it is over") {
  Job job;
  job.begin(3);
  for (int rank = 0; rank < 3; ++rank) job.joined(rank, kBegin);
  // Ranks 0 and 1 have waited for rank 2 since 3 s.
  const std::vector<OpenWait> open = {{{0, 1}, 2, 7s}};
  const Goodput found = job.ledger.at(kBegin + 10s, open);
  check_closed(found);
  CHECK(found.goodput() == doctest::Approx(16.0 / 30));
  CHECK(waited_for(found.ranks[0], 2) == 7s);
  CHECK(found.ranks[2].waits.empty());
  REQUIRE(found.costs.size() == 1);
  CHECK(found.summary().culprit == 2);
  CHECK(found.summary().cost == 14s);
  CHECK(job.ledger.at(kBegin + 10s).goodput() == 1);

  // In a circle the late ranks wait, too, but not for themselves.
  const Goodput circle = job.ledger.at(kBegin + 10s, {{{0, 1, 2}, 2, 7s}});
  check_closed(circle);
  CHECK(circle.ranks[2].waits.empty());
}

TEST_CASE("goodput: a slow link takes its share of the transfer") {
  Job job;
  job.begin(2);
  for (const int rank : {0, 1}) job.joined(rank, kBegin);
  job.ledger.slow_links({{1, 0.25}});
  for (const int rank : {0, 1}) {
    job.report(rank, kBegin + 8s, {all_reduce(1, kBegin + 2s, kBegin + 8s)}, kBegin);
  }
  job.ledger.slow_links({});
  for (const int rank : {0, 1}) job.report(rank, kBegin + 10s, {}, kBegin);
  const Goodput found = job.finish(kBegin + 10s);
  check_closed(found);
  CHECK(waited_for(found.ranks[0], 1, WaitCause::link) == 2s);
  CHECK(found.ranks[0].transfer == 4s);
}

// The shares of slow links are estimates; a wait for a rank that came late is measured.
TEST_CASE("goodput: slow links never take more than the time in libdlring without other waits") {
  Job job;
  job.begin(2);
  for (const int rank : {0, 1}) job.joined(rank, kBegin);
  job.ledger.slow_links({{0, 0.9}, {1, 0.9}});
  job.report(0, kBegin + 10s, {all_reduce(1, kBegin, kBegin + 8s)}, kBegin);
  job.report(1, kBegin + 10s, {all_reduce(1, kBegin + 5s, kBegin + 8s)}, kBegin);
  const Goodput found = job.finish(kBegin + 10s);
  check_closed(found);
  CHECK(waited_for(found.ranks[0], 1, WaitCause::compute) == 5s);
  CHECK(waited_for(found.ranks[0], 0, WaitCause::link) == 1500ms);
  CHECK(waited_for(found.ranks[0], 1, WaitCause::link) == 1500ms);
  CHECK(waited_for(found.ranks[1], 0, WaitCause::link) == 1500ms);
  CHECK(found.compute == 2s + 7s);
  CHECK(found.transfer == 0s);
}

TEST_CASE("waits: of operations in the background only those that the program itself waits for") {
  WaitFinder finder;
  Span begun = all_reduce(1, kBegin, kBegin + 10s);
  begun.kind = SpanKind::background;
  Span late = all_reduce(1, kBegin + 8s, kBegin + 10s);
  Span waits{.kind = SpanKind::wait, .entered = kBegin + 5s, .left = kBegin + 10s};
  finder.add(1, 0, 0, begun);
  finder.add(1, 0, 0, waits);
  finder.add(1, 1, 0, late);
  const auto found = finder.take(kBegin + 10s);
  REQUIRE(found.size() == 1);
  CHECK(found[0] == Wait{0, 1, WaitCause::compute, kBegin + 5s, kBegin + 8s});
}

TEST_CASE("waits: a rank that is late because it waited itself is not to blame") {
  WaitFinder finder;
  Span first = all_reduce(1, kBegin, kBegin + 4s);  // ranks 1 and 2, in a group
  first.group = 7;
  Span slow = all_reduce(1, kBegin + 4s, kBegin + 4s);
  slow.group = 7;
  finder.add(1, 1, 0, first);
  finder.add(1, 2, 0, slow);
  finder.add(1, 0, 0, all_reduce(1, kBegin + 1s, kBegin + 6s));
  finder.add(1, 1, 0, all_reduce(1, kBegin + 5s, kBegin + 6s));
  const auto found = finder.take(kBegin + 6s);
  REQUIRE(found.size() == 3);
  CHECK(found[0] == Wait{1, 2, WaitCause::compute, kBegin, kBegin + 4s});
  CHECK(found[1] == Wait{0, 2, WaitCause::compute, kBegin + 1s, kBegin + 4s});
  CHECK(found[2] == Wait{0, 1, WaitCause::compute, kBegin + 4s, kBegin + 5s});
}

TEST_CASE("waits: for a rank that stands still, also where all have entered") {
  WaitFinder finder;
  finder.stood(2, kBegin + 3s, kBegin + 6s);
  finder.add(1, 0, 0, all_reduce(1, kBegin, kBegin + 7s));
  finder.add(1, 1, 0, all_reduce(1, kBegin + 2s, kBegin + 7s));
  finder.add(1, 2, 0, all_reduce(1, kBegin + 1s, kBegin + 7s));
  const auto found = finder.take(kBegin + 7s);
  REQUIRE(found.size() == 4);
  CHECK(found[0] == Wait{0, 1, WaitCause::compute, kBegin, kBegin + 2s});
  CHECK(found[1] == Wait{2, 1, WaitCause::compute, kBegin + 1s, kBegin + 2s});
  CHECK(found[2] == Wait{0, 2, WaitCause::compute, kBegin + 3s, kBegin + 6s});
  CHECK(found[3] == Wait{1, 2, WaitCause::compute, kBegin + 3s, kBegin + 6s});
}

TEST_CASE("waits: for the root of a broadcast, at the root of a gather, for a sender") {
  WaitFinder finder;
  const auto rooted = [](std::uint8_t what, std::uint64_t seq, Duration entered) {
    Span span = all_reduce(seq, kBegin + entered, kBegin + 9s);
    span.what = what;
    span.peer = 1;
    return span;
  };
  const std::uint8_t broadcast = 3, gather = 6;
  finder.add(1, 0, 0, rooted(broadcast, 1, 2s));
  finder.add(1, 1, 0, rooted(broadcast, 1, 5s));
  finder.add(1, 2, 0, rooted(broadcast, 1, 7s));  // later than the root, but no rank needs it
  finder.add(1, 0, 0, rooted(gather, 2, 6s));
  finder.add(1, 1, 0, rooted(gather, 2, 6s));
  finder.add(1, 2, 0, rooted(gather, 2, 8s));
  Span receives = all_reduce(0, kBegin + 10s, kBegin + 12s);
  receives.what = kFlightRecv;
  receives.peer = 2;
  finder.add(1, 0, 0, receives);
  CHECK(finder.take(kBegin + 8s).empty());  // not all have left
  const auto found = finder.take(kBegin + 12s);
  REQUIRE(found.size() == 3);
  CHECK(found[0] == Wait{0, 1, WaitCause::compute, kBegin + 2s, kBegin + 5s});
  CHECK(found[1] == Wait{1, 2, WaitCause::compute, kBegin + 6s, kBegin + 8s});
  CHECK(found[2] == Wait{0, 2, WaitCause::compute, kBegin + 10s, kBegin + 12s});
}

// Whatever happens, in whatever order reports come.
TEST_CASE("goodput: the accounts of each rank sum up to its time in random jobs") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    GoodputLedger ledger{kBegin};
    TimePoint now = kBegin;
    int round = 1, size = 1 + below(4);
    std::uint64_t seq = 0;
    ledger.begin_round(now, round, size);
    for (int event = 0; event < 60; ++event) {
      now += std::chrono::milliseconds(below(3000));
      const int rank = below(size);
      const TimePoint earlier = now - std::chrono::milliseconds(below(4000));
      switch (below(8)) {
        case 0:
          ledger.started(now, rank);
          break;
        case 1:
          ledger.done(earlier, rank);
          break;
        case 2:
          ledger.failed(earlier, rank, below(3) == 0);
          break;
        case 3:
          size = 1 + below(5);
          ledger.begin_round(now, ++round, size);
          break;
        case 4:
          ledger.committed(now);
          break;
        case 5:
          ledger.slow_links({{rank, below(3) * 0.4}, {below(size), 0.7}});
          break;
        default:
          Span span = all_reduce(++seq / 2, earlier, now);
          span.peer = below(4) - 1;
          span.what = static_cast<std::uint8_t>(below(9));
          ledger.take(below(2), {.rank = rank,
                                 .round = round - below(2),
                                 .until = now,
                                 .joined = earlier,
                                 .blocked = std::chrono::milliseconds(below(9000)),
                                 .spans = {span}});
          ledger.find_waits();
      }
      check_closed(ledger.at(now));
      check_closed(
          ledger.at(now, {{{0, 1, 3}, below(4), std::chrono::milliseconds(below(60000))}}));
    }
    ledger.finish(now);
    const Goodput found = ledger.at(now + 1h);
    check_closed(found);
    CHECK(found.wall == now - kBegin);
  }
}
