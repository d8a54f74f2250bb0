#include "launcher/lead/monitor/step_digest.h"

#include <doctest/doctest.h>

#include "launcher/node/watch/node_steps.h"
#include "launcher/wire/node_message.h"
#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Records = std::map<int, NodeSteps::Record>;

// One look at ranks on some hosts, as the hosts and the leader do it.
class Job {
 public:
  std::optional<StepTimes> look(const std::vector<Records>& hosts) {
    std::set<int> nodes;
    for (std::size_t node = 0; node < hosts.size(); ++node) nodes.insert(static_cast<int>(node));
    steps_.resize(hosts.size());
    const NodeLook look = digest_.begin(nodes);
    std::optional<NodeCut> cut;
    for (const int node : nodes) {
      const auto i = static_cast<std::size_t>(node);
      const auto spans = steps_[i].look(look.look, hosts[i]);
      if (spans) cut = digest_.add(node, *spans);
    }
    std::optional<StepTimes> step;
    for (const int node : nodes) {
      if (!cut) break;
      const auto times = steps_[static_cast<std::size_t>(node)].cut(*cut);
      if (times) step = digest_.add(node, *times);
    }
    return step;
  }
  std::optional<StepTimes> add(const Records& ranks) { return look({ranks}); }
  void reset() { digest_.reset(); }

 private:
  StepDigest digest_;
  std::vector<NodeSteps> steps_;
};

// A rank that enters collective i of every 10 ms by `late`, and leaves all of them with the others.
NodeSteps::Record spans(std::uint64_t first, std::uint64_t last, Duration late) {
  NodeSteps::Record out;
  for (auto seq = first; seq <= last; ++seq) {
    const TimePoint all_there = kStart + 10ms * seq + 4ms;
    out.spans.push_back({seq, kStart + 10ms * seq + late, all_there + 1ms});
  }
  return out;
}

// Two ranks; each has so much from the other after `calls` collectives.
Records linked(std::uint64_t calls, const FlightReceived& by_0, const FlightReceived& by_1) {
  Records records{{0, spans(calls > 60 ? calls - 60 : 1, calls, 0ms)},
                  {1, spans(calls > 60 ? calls - 60 : 1, calls, 0ms)}};
  records[0].received = {by_0};
  records[1].received = {by_1};
  return records;
}

}  // namespace

TEST_CASE("times of a rank are means over the collectives that all ranks have done") {
  Job digest;
  const auto step = digest.add({{0, spans(1, 20, 0ms)}, {1, spans(1, 18, 4ms)}});
  REQUIRE(step);
  CHECK(step->steps == 17);
  REQUIRE(step->ranks.size() == 2);
  CHECK(step->ranks[0].late == doctest::Approx(0));
  CHECK(step->ranks[1].late == doctest::Approx(0.004));
  CHECK(step->ranks[0].in_op == doctest::Approx(0.005));
  CHECK(step->ranks[1].in_op == doctest::Approx(0.001));
  CHECK(step->ranks[0].step == doctest::Approx(0.010));
}

TEST_CASE("no collective counts twice, and missing ones are not guessed") {
  Job digest;
  REQUIRE(digest.add({{0, spans(1, 20, 0ms)}, {1, spans(1, 20, 0ms)}}));
  CHECK_FALSE(digest.add({{0, spans(1, 20, 0ms)}, {1, spans(1, 20, 0ms)}}));
  const auto more = digest.add({{0, spans(10, 40, 0ms)}, {1, spans(10, 30, 0ms)}});
  REQUIRE(more);
  CHECK(more->steps == 10);
  // The record of a rank has moved on further than those of the others.
  CHECK_FALSE(digest.add({{0, spans(100, 160, 0ms)}, {1, spans(31, 90, 0ms)}}));
  CHECK_FALSE(digest.add({{0, spans(31, 90, 0ms)}, {1, {}}}));
  auto hole = spans(100, 140, 0ms);
  hole.spans.erase(hole.spans.begin() + 20);
  CHECK_FALSE(digest.add({{0, hole}, {1, spans(100, 140, 0ms)}}));
}

TEST_CASE("a new round begins at the first collective") {
  Job digest;
  REQUIRE(digest.add({{0, spans(1, 50, 0ms)}}));
  CHECK_FALSE(digest.add({{0, spans(1, 9, 0ms)}}));
  digest.reset();
  CHECK(digest.add({{0, spans(1, 9, 0ms)}}));
}

TEST_CASE("the data of a link between two looks are divided by the collectives") {
  Job digest;
  const auto first = digest.add(linked(50, {1, 50'000'000, 5ms}, {0, 50'000'000, 5ms}));
  REQUIRE(first);
  CHECK(first->links.empty());  // there is nothing yet to compare with
  // 200 collectives later; the records hold 61 of them.
  const auto step = digest.add(linked(250, {1, 250'000'000, 45ms}, {0, 70'000'000, 405ms}));
  REQUIRE(step);
  REQUIRE(step->links.size() == 2);
  CHECK(step->links[0].from == 1);
  CHECK(step->links[0].to == 0);
  CHECK(step->links[0].bytes == doctest::Approx(1e6));
  CHECK(step->links[0].seconds == doctest::Approx(0.0002));
  CHECK(step->links[1].from == 0);
  CHECK(step->links[1].to == 1);
  CHECK(step->links[1].bytes == doctest::Approx(1e5));
  CHECK(step->links[1].seconds == doctest::Approx(0.002));
  CHECK(step->links[0].kind == step->links[1].kind);
}

TEST_CASE("a link without data is left out, and data of an unseen one are kept") {
  Job digest;
  REQUIRE(digest.add(linked(50, {1, 1000, 1ms}, {0, 1000, 1ms})));
  Records torn = linked(60, {1, 1000, 1ms}, {0, 2000, 2ms});
  torn[1].received.clear();
  const auto without = digest.add(torn);
  REQUIRE(without);
  CHECK(without->links.empty());
  const auto step = digest.add(linked(100, {1, 1000, 1ms}, {0, 51'000, 26ms}));
  REQUIRE(step);
  REQUIRE(step->links.size() == 1);
  CHECK(step->links[0].bytes == doctest::Approx(1000));
  CHECK(step->links[0].seconds == doctest::Approx(0.0005));
}

TEST_CASE("no link is reported as faster than memory") {
  Job digest;
  REQUIRE(digest.add(linked(50, {1, 1000, 0ms}, {0, 1000, 0ms})));
  const auto step = digest.add(linked(60, {1, 100'001'000, 0ms}, {0, 100'001'000, 1ms}));
  REQUIRE(step);
  for (const LinkTimes& link : step->links) CHECK(link.seconds == doctest::Approx(0.001));
}

TEST_CASE("a new round has no links to compare with") {
  Job digest;
  REQUIRE(digest.add(linked(50, {1, 1000, 1ms}, {0, 1000, 1ms})));
  digest.reset();
  const auto step = digest.add(linked(60, {1, 2000, 2ms}, {0, 2000, 2ms}));
  REQUIRE(step);
  CHECK(step->links.empty());
}

TEST_CASE("ranks of several hosts are compared over the collectives that all hosts know") {
  Job job;
  const auto step = job.look({{{0, spans(1, 20, 0ms)}, {2, spans(3, 22, 1ms)}},
                              {{1, spans(1, 18, 4ms)}},
                              {{3, spans(1, 25, 2ms)}}});
  REQUIRE(step);
  CHECK(step->steps == 15);
  REQUIRE(step->ranks.size() == 4);
  CHECK(step->ranks[0].late == doctest::Approx(0));
  CHECK(step->ranks[1].late == doctest::Approx(0.004));
  CHECK(step->ranks[2].late == doctest::Approx(0.001));
  CHECK(step->ranks[3].late == doctest::Approx(0.002));
  CHECK(step->ranks[1].in_op == doctest::Approx(0.001));
}

TEST_CASE("a rank that no host or two hosts report spoils only this look") {
  Job job;
  CHECK_FALSE(job.look({{{0, spans(1, 20, 0ms)}}, {{2, spans(1, 20, 0ms)}}}));
  CHECK_FALSE(job.look({{{0, spans(1, 20, 0ms)}}, {{0, spans(1, 20, 0ms)}}}));
  CHECK_FALSE(job.look({{{0, spans(1, 20, 0ms)}}, {}}));
  CHECK(job.look({{{0, spans(1, 20, 0ms)}}, {{1, spans(1, 20, 0ms)}}}));
}

TEST_CASE("reports for an earlier look, or without a request, are ignored") {
  StepDigest digest;
  const NodeLook old = digest.begin({0, 1});
  CHECK_FALSE(digest.add(0, NodeSpans{old.look, 1, 20}));
  const NodeLook look = digest.begin({0, 1});
  CHECK_FALSE(digest.add(1, NodeSpans{old.look, 1, 20}));
  CHECK_FALSE(digest.add(0, NodeSpans{look.look, 1, 20}));
  CHECK_FALSE(digest.add(7, NodeSpans{look.look, 1, 20}));
  CHECK_FALSE(digest.add(0, NodeTimes{look.look, {}, {}}));
  const auto cut = digest.add(1, NodeSpans{look.look, 5, 18});
  REQUIRE(cut);
  CHECK(cut->first == 5);
  CHECK(cut->last == 18);
  NodeSteps steps;
  REQUIRE(steps.look(look.look, {{0, spans(1, 20, 0ms)}}));
  CHECK_FALSE(steps.cut(NodeCut{old.look, 5, 18}));
  CHECK_FALSE(steps.cut(NodeCut{look.look, 5, 21}));
  CHECK_FALSE(steps.cut(NodeCut{look.look, 0, ~0ULL}));
  CHECK(steps.cut(*cut));
}

TEST_CASE("links within a host and between hosts are of two kinds") {
  Job job;
  const auto hosts = [](std::uint64_t calls) {
    Records near = linked(calls, {1, 1000 * calls, 1ms * calls}, {0, 1000 * calls, 1ms * calls});
    near[0].received.push_back({2, 500 * calls, 1ms * calls});
    NodeSteps::Record far = near[0];
    far.received = {{0, 500 * calls, 1ms * calls}};
    return std::vector<Records>{near, {{2, far}}};
  };
  REQUIRE(job.look(hosts(30)));
  const auto step = job.look(hosts(50));
  REQUIRE(step);
  REQUIRE(step->links.size() == 4);
  for (const LinkTimes& link : step->links) {
    const bool far = link.from == 2 || link.to == 2;
    CHECK(link.kind == (far ? StepDigest::kBetweenHosts : StepDigest::kWithinHost));
    CHECK(link.seconds == doctest::Approx(0.001));
  }
}

// 125 hosts of eight ranks, which get data from two others each: a ring.
TEST_CASE("a look at a thousand ranks takes so many bytes") {
  NodeSteps steps;
  Records ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks[rank] = spans(1, 60, 0ms);
    ranks[rank].received = {{rank + 8, 1000, 1ms}, {rank + 16, 1000, 1ms}};
  }
  const auto seen = steps.look(1, ranks);
  REQUIRE(seen);
  const auto times = steps.cut({1, 2, 60});
  REQUIRE(times);
  const auto bytes = encode(NodeLook{1}, kStart).size() + encode(*seen, kStart).size() +
                     encode(NodeCut{1, 2, 60}, kStart).size() + encode(*times, kStart).size();
  const std::size_t all = bytes * 125;
  MESSAGE(all, " bytes a look at 1000 ranks");
  CHECK(all < 100'000);
}
