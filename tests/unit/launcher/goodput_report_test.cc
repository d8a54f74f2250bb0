// The accounts of goodput in words.
#include "launcher/lead/report/goodput_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/lead/job_ledger.h"
#include "tests/unit/elastic/job_world.h"
#include "tests/unit/launcher/job_facts.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

// Rank 1 is 10 s late in a collective of 100 s, and fails at their end.
Goodput accounts() {
  GoodputLedger ledger(kStart);
  ledger.begin_round(kStart, 1, 2);
  for (const int rank : {0, 1}) {
    const TimePoint entered = kStart + (rank == 0 ? 50s : 60s);
    ledger.take(0, {.rank = rank,
                    .round = 1,
                    .until = kStart + 91s,
                    .joined = kStart + 10s,
                    .blocked = kStart + 70s - entered,
                    .spans = {{.seq = 1, .entered = entered, .left = kStart + 70s}}});
  }
  ledger.committed(kStart + 91s);
  ledger.failed(kStart + 96s, 1, false);
  ledger.finish(kStart + 100s);
  return ledger.at(kStart + 100s);
}

TEST_CASE("goodput report: the shares, and what each rank cost") {
  const auto lines = goodput_lines(accounts());
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] ==
        "goodput 76.0 % of 2 ranks in 100 s: compute 66.0 %, transfer 10.0 %, waiting 5.0 %, "
        "recovery "
        "4.0 %, lost work 5.0 %, start 10.0 %");
  CHECK(lines[1] ==
        "  rank 1 cost 14.0 %: waits for its compute 5.0 %, recovery 4.0 %, lost work 5.0 %");
  const auto json = goodput_json(accounts());
  CHECK(json["rank_seconds"] == 200.0);
  CHECK(json["costs"][0]["waiting_s"]["compute"] == 10.0);
  CHECK(json["ranks"][1]["lost_work"][0]["rank"] == 1);
  CHECK(goodput_lines({}).empty());
}

TEST_CASE("goodput report: a job that failed after a minute says it, and one that asked for it") {
  JobFacts failed = facts({exited(1, 9000, 3)});
  failed.goodput = accounts();
  const auto says = [](const JobFacts& of) {
    const auto lines = render_text(of, judge(of), false);
    return !lines.empty() && lines.back().starts_with("  rank 1 cost");
  };
  CHECK_FALSE(says(failed));
  failed.ended = kStart + 61s;
  CHECK(says(failed));
  JobFacts well = facts({exited(0, 9000, 0)}, JobEnding::succeeded);
  well.goodput = accounts();
  CHECK_FALSE(says(well));
  well.shows_goodput = true;
  CHECK(says(well));
}

TEST_CASE("goodput report: a job that ended well names a rank that cost a fifth of its time") {
  JobFacts well = facts({exited(0, 9000, 0)}, JobEnding::succeeded);
  Goodput goodput = accounts();
  goodput.sees_waits = true;
  auto& worst = goodput.costs.at(0);
  worst.host = "b";
  worst.waits[WaitCause::link] = 30s;
  well.goodput = goodput;
  CHECK(render_text(well, judge(well), false).empty());  // the user wants no such words
  well.tells_cost = true;
  const auto lines = render_text(well, judge(well), false);
  REQUIRE(lines.size() == 1);
  CHECK(
      lines[0].starts_with("rank 1 (b) cost 29.0 %: waits for its compute 5.0 %, waits for its "
                           "network link 15.0 %, "));
  well.goodput->wall = 9s;
  CHECK(render_text(well, judge(well), false).empty());
  well.goodput = goodput;
  well.goodput->costs[0].waits[WaitCause::link] = 11s;  // less than a fifth
  CHECK(render_text(well, judge(well), false).empty());
  well.goodput = goodput;
  well.goodput->sees_waits = false;
  CHECK(render_text(well, judge(well), false).empty());
}

// As measured on three hosts, where the second one's line has 200 Mbit/s: it costs 40 ms of a step
// of 90 ms.
TEST_CASE("job ledger: a host whose links are slow costs all ranks alike, and is named") {
  for (const bool all_alike : {false, true}) {
    JobLedger ledger(kStart, 2);
    ledger.begin_round(kStart, 1, 3);
    StepTimes step{.steps = 10, .ranks = {}, .links = {}};
    for (int rank = 0; rank < 3; ++rank) step.ranks.push_back({.in_op = 0.045, .step = 0.09});
    for (const auto& [from, to] :
         std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}) {
      const bool slow = all_alike || from == 1 || to == 1;
      step.links.push_back(
          {.from = from, .to = to, .kind = 2, .bytes = 667e3, .seconds = slow ? 0.041 : 0.001});
    }
    for (int second = 1; second <= 20; ++second) {
      const TimePoint now = kStart + std::chrono::seconds(second);
      const auto shares = ledger.measured(step);
      const bool judged = !all_alike && second >= 3;
      CHECK(shares.size() == (judged ? 1 : 0));
      CHECK(shares.contains(1) == judged);
      for (const int rank : {0, 1, 2}) {
        const NodeBooks books{{{.rank = rank,
                                .round = 1,
                                .until = now,
                                .joined = kStart,
                                .blocked = std::chrono::milliseconds(500 * second)}}};
        ledger.take(now, rank, fmt::format("host{}", rank), books);
      }
    }
    ledger.finish(kStart + 20s);
    const Goodput found = ledger.at(kStart + 20s);
    CHECK(found.compute + found.transfer + found.waiting == found.total);
    if (all_alike) {
      CHECK(found.waiting == 0s);
      continue;
    }
    const GoodputSummary summary = found.summary();
    CHECK(summary.culprit == 1);
    CHECK(summary.host == "host1");
    CHECK(summary.cause == "link");
    // The first looks do not suffice for a judgement.
    CHECK(found.share(found.waiting) == doctest::Approx(0.9 * 40 / 90).epsilon(0.02));
    CHECK(
        goodput_lines(found)[1].starts_with("  rank 1 (host1) cost 40.0 %: waits for its network "
                                            "link"));
  }
}

// Four ranks on two hosts. In each collective of 10 s both ranks of host b come 2 s late or more,
// and one of them in turn is the last; rank 0 is late once.
Goodput accounts_of_busy_host() {
  JobLedger ledger(kStart, 2);
  ledger.begin_round(kStart, 1, 4);
  for (const int node : {0, 1}) {
    NodeBooks joined;
    for (const int rank : {2 * node, 2 * node + 1}) {
      joined.ranks.push_back({.rank = rank, .round = 1, .until = kStart, .joined = kStart});
    }
    ledger.take(kStart, node, node == 0 ? "a" : "b", joined);
  }
  const auto collective = [&](std::uint64_t seq, const std::vector<Duration>& late) {
    const TimePoint begin = kStart + std::chrono::seconds(10 * seq);
    const Duration last = *std::max_element(late.begin(), late.end());
    std::vector<NodeBooks> books(2);
    for (int rank = 0; rank < 4; ++rank) {
      const auto of = static_cast<std::size_t>(rank);
      books[of / 2].ranks.push_back(
          {.rank = rank,
           .round = 1,
           .until = begin + 9s,
           .joined = kStart,
           .blocked = std::chrono::seconds(10 * seq),
           .spans = {{.seq = seq, .entered = begin + late[of], .left = begin + last}}});
    }
    ledger.take(begin + 9s, 0, "a", books[0]);
    ledger.take(begin + 9s, 1, "b", books[1]);
  };
  collective(1, {0s, 0s, 2s, 2400ms});
  collective(2, {0s, 0s, 2400ms, 2s});
  collective(3, {2400ms, 0s, 0s, 0s});
  ledger.finish(kStart + 40s);
  return ledger.at(kStart + 40s);
}

TEST_CASE("goodput report: a busy host is named with the sum of its ranks") {
  Goodput found = accounts_of_busy_host();
  REQUIRE(found.costs.size() == 3);
  CHECK(found.costs[0].rank == 0);  // of the ranks
  const GoodputSummary summary = found.summary();
  CHECK(summary.culprit == -1);
  CHECK(summary.host == "b");
  CHECK(summary.cause == "host");
  // Each collective costs 2.4 s for both ranks of host a, and 0.4 s for the other rank of host b.
  CHECK(summary.cost == 2 * (2 * 2400ms + 400ms));
  const auto culprits = found.culprits();
  REQUIRE(culprits.size() == 2);
  CHECK(culprits[1].rank == 0);

  const auto lines = goodput_lines(found);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1] == "  b cost 6.5 %: waits for its compute 0.5 %, waits for the busy host 6.0 %");
  CHECK(lines[2] == "  rank 0 (a) cost 4.5 %: waits for its compute 4.5 %");
  CHECK(goodput_json(found)["costs_most"] == lines[1].substr(2));
  CHECK(goodput_json({})["costs_most"].is_null());
  const auto json = goodput_json(found);
  CHECK(json["costs"].size() == 3);
  REQUIRE(json["culprits"].size() == 2);
  CHECK(json["culprits"][0]["rank"].is_null());
  CHECK(json["culprits"][0]["host"] == "b");
  CHECK(json["culprits"][0]["s"] == to_seconds(summary.cost));
  CHECK(json["culprits"][1]["rank"] == 0);
  CHECK(worst_cost_line(found).empty());
  found.costs[1].waits[WaitCause::host] += 40s;
  CHECK(worst_cost_line(found).starts_with("b cost 3"));
}

TEST_CASE("goodput report: a host whose ranks cost more by their failures is not busy") {
  Goodput found = accounts_of_busy_host();
  for (Goodput::Cost& cost : found.costs) {
    if (cost.host == "b") cost.recovery = 5s;
  }
  CHECK(found.culprits().size() == 3);
  CHECK(found.summary().culprit == 2);
  for (Goodput::Cost& cost : found.costs) cost.host = "";  // the job has one host
  CHECK(found.culprits().size() == 3);
}

TEST_CASE("job ledger: a rank that dlaunch replaces fails once, also if that ends the job") {
  JobWorld world(of(2, 1));
  JobLedger ledger(kStart, 2);
  ledger.begin_round(kStart, 1, 2);
  for (const Slot slot : {0, 1}) ledger.see(kStart, JobCore::Spawned{slot}, world.core);
  ledger.see(kStart + 4s, JobCore::Progress{0, 7}, world.core);
  ledger.see(kStart + 9s, JobCore::Replace{1, FailureKind::hung}, world.core);
  const Goodput hung = ledger.at(kStart + 9s);
  CHECK(hung.lost == 10s);  // since the commit, of both
  CHECK(hung.summary().culprit == 1);
  CHECK(hung.summary().cause == "lost_work");

  // Its successor works already when its end is reported.
  ledger.begin_round(kStart + 10s, 2, 2);
  for (const Slot slot : {0, 1}) ledger.see(kStart + 10s, JobCore::Spawned{slot}, world.core);
  ledger.ended(1, killed(1, 9500, SIGKILL), world.core);
  const Goodput later = ledger.at(kStart + 20s);
  CHECK(later.recovery == 2s);
  CHECK(later.lost == 10s);
  // The successor itself fails.
  ledger.ended(1, killed(1, 20000, SIGKILL), world.core);
  CHECK(ledger.at(kStart + 20s).lost == 30s);
}

TEST_CASE("job ledger: a state that members hold has no work of the time of a hang") {
  JobWorld world(of(2, 1));
  JobLedger ledger(kStart, 2);
  ledger.begin_round(kStart, 1, 2);
  for (const Slot slot : {0, 1}) ledger.see(kStart, JobCore::Spawned{slot}, world.core);
  ledger.hung(kStart + 8s, 3s);
  ledger.see(kStart + 9s, JobCore::Replace{1, FailureKind::hung}, world.core);
  CHECK(ledger.at(kStart + 9s).lost == 18s);
  // Rank 0 holds a state that no commit has reported.
  ledger.see(kStart + 9s, JobCore::Ready{.slot = 0, .version = 7}, world.core);
  CHECK(ledger.at(kStart + 9s).lost == 8s);  // of both since 5 s, when the hang began
}

TEST_CASE("job ledger: a rank that is stopped in a collective costs the others") {
  JobLedger ledger(kStart, 2);
  ledger.begin_round(kStart, 1, 2);
  NodeBooks books;
  for (const int rank : {0, 1}) {
    books.ranks.push_back({.rank = rank,
                           .round = 1,
                           .until = kStart + 9s,
                           .joined = kStart,
                           .blocked = 6s,
                           .spans = {{.seq = 1, .entered = kStart + 2s, .left = kStart + 8s}}});
  }
  ledger.take(kStart + 3s, 0, "a", NodeSeen{{{.rank = 1, .state = ProcessState::stopped}}});
  ledger.take(kStart + 7s, 0, "a", NodeSeen{{{.rank = 1, .state = ProcessState::running}}});
  ledger.take(kStart + 9s, 0, "a", books);
  ledger.finish(kStart + 10s);
  const Goodput found = ledger.at(kStart + 10s);
  REQUIRE(found.costs.size() == 1);
  CHECK(found.costs[0].rank == 1);
  CHECK(found.waiting == 4s);
  CHECK(found.transfer == 8s);
}

TEST_CASE("job ledger: the events of a job change its books") {
  JobWorld world(of(2, 1));
  JobLedger ledger(kStart, 2);
  ledger.begin_round(kStart, 1, 2);
  for (const Slot slot : {0, 1}) ledger.see(kStart + 1s, JobCore::Spawned{slot}, world.core);
  ledger.see(kStart + 4s, JobCore::Progress{0, 7}, world.core);
  ledger.ended(0, lost(1, exited(0, 6000, 1)), world.core);  // because of rank 1
  const Goodput before = ledger.at(kStart + 6s);
  CHECK(before.lost == 4s);
  REQUIRE(before.costs.size() == 1);
  CHECK(before.costs[0].rank == 1);
  ledger.see(kStart + 7s, JobCore::Ready{1, 1, 7}, world.core);
  CHECK(ledger.at(kStart + 7s).lost == 4s);  // the commit had reported that state
  ledger.see(kStart + 7s, JobCore::Ready{1, 1, 9}, world.core);
  CHECK(ledger.at(kStart + 7s).lost == 0s);
}

}  // namespace
}  // namespace dlaunch
