#include "launcher/lead/report/wait_samples.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

using nlohmann::json;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Rank 1 has waited for rank 0 for that long.
Goodput waited(Duration time) {
  Goodput goodput;
  goodput.ranks.resize(2);
  goodput.ranks[1].rank = 1;
  goodput.ranks[1].waits = {{.culprit = 0, .cause = WaitCause::compute, .time = time}};
  return goodput;
}

TEST_CASE("wait samples: each has what came since the one before") {
  const TimePoint begun{seconds(100)};
  WaitSamples samples(begun);
  CHECK(samples.due() == begun + seconds(1));
  const json first = json::parse(samples.sample(begun + seconds(1), waited(milliseconds(250))));
  CHECK(first["monotonic"] == 101);
  CHECK(first["seconds"] == 1);
  CHECK(first["ranks"][0] ==
        json{{"rank", 0}, {"waiting", 0}, {"caused", 0.25}, {"caused_cause", "compute"}});
  CHECK(first["ranks"][1] == json{{"rank", 1},
                                  {"waiting", 0.25},
                                  {"caused", 0},
                                  {"waiting_cause", "compute"},
                                  {"waited_for", 0}});
  const json second = json::parse(samples.sample(begun + seconds(3), waited(milliseconds(1000))));
  CHECK(second["seconds"] == 2);
  CHECK(second["ranks"][1]["waiting"] == 0.75);
}

TEST_CASE("wait samples: each has the cause and the rank of most of its own waits") {
  const TimePoint begun{seconds(100)};
  WaitSamples samples(begun);
  Goodput goodput;
  goodput.ranks.resize(3);
  for (int rank = 0; rank < 3; ++rank) goodput.ranks[static_cast<std::size_t>(rank)].rank = rank;
  auto& waits = goodput.ranks[1].waits;
  waits = {{.culprit = 0, .cause = WaitCause::input, .time = seconds(5)}};
  samples.sample(begun + seconds(5), goodput);
  waits[0].time += milliseconds(100);
  waits.push_back({.culprit = 2, .cause = WaitCause::gc, .time = milliseconds(300)});
  waits.push_back({.culprit = 2, .cause = WaitCause::link, .time = milliseconds(400)});
  const json rows = json::parse(samples.sample(begun + seconds(6), goodput))["ranks"];
  CHECK(rows[0]["caused_cause"] == "input");
  CHECK(rows[1]["waiting_cause"] == "link");
  CHECK(rows[1]["waited_for"] == 2);
  CHECK(rows[2]["caused_cause"] == "link");
  CHECK_FALSE(rows[2].contains("waiting_cause"));
}

TEST_CASE("wait samples: a wait whose culprit becomes known later is no new wait") {
  const TimePoint begun{seconds(100)};
  WaitSamples samples(begun);
  Goodput goodput = waited(seconds(1));
  goodput.ranks[1].waits[0].culprit = -1;
  const json first = json::parse(samples.sample(begun + seconds(1), goodput))["ranks"];
  CHECK(first[1]["waiting"] == 1);
  CHECK_FALSE(first[1].contains("waited_for"));
  const json next = json::parse(samples.sample(begun + seconds(2), waited(seconds(1))))["ranks"];
  CHECK(next[1]["waiting"] == 0);
  CHECK(next[0]["caused"] == 1);
}

TEST_CASE("wait samples: lost work takes no time back") {
  const TimePoint begun{seconds(100)};
  WaitSamples samples(begun);
  samples.sample(begun + seconds(1), waited(seconds(1)));
  const json next = json::parse(samples.sample(begun + seconds(2), waited(seconds(0))));
  CHECK(next["ranks"][0]["caused"] == 0);
  CHECK(next["ranks"][1]["waiting"] == 0);
}

TEST_CASE("wait samples: no more often than the hosts of a large job report") {
  const TimePoint begun{seconds(100)};
  WaitSamples samples(begun);
  Goodput goodput;
  goodput.ranks.resize(1000);
  for (int rank = 0; rank < 1000; ++rank) {
    goodput.ranks[static_cast<std::size_t>(rank)].rank = rank;
  }
  samples.sample(begun + seconds(1), goodput);
  CHECK(samples.due() == begun + seconds(1) + spans_interval(1000));
}

TEST_CASE("wait samples: a job of a month has some thousand") {
  const TimePoint begun{seconds(100)};
  WaitSamples samples(begun);
  int count = 0;
  for (TimePoint now = samples.due(); now < begun + hours(24 * 30); now = samples.due()) {
    samples.sample(now, {});
    ++count;
  }
  CHECK(count > 1000);
  CHECK(count < 6000);
}

}  // namespace
}  // namespace dlaunch
