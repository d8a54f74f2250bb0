#include "elastic/straggler_detector.h"

#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/elastic/step_trace.h"

using namespace dlaunch;
using namespace dlaunch::test;
using namespace std::chrono_literals;

namespace {

TimePoint at(double seconds) {
  return TimePoint(1000s) + Duration(static_cast<std::int64_t>(seconds * 1e9));
}

// A different machine and job for each seed.
TraceConfig setting(std::uint64_t seed) {
  std::mt19937_64 random(seed * 7919);
  const auto pick = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  TraceConfig config;
  config.ranks = 2 + static_cast<int>(random() % 15);
  config.rank = static_cast<int>(random() % static_cast<std::uint64_t>(config.ranks));
  config.compute = pick(0.05, 0.2);
  config.transfer = config.compute * pick(0.02, 0.4);
  config.noise = pick(0.01, 0.1);
  config.seed = seed;
  return config;
}

struct Outcome {
  int alarms = 0, right = 0, windows = 0;
  std::optional<double> named_after;  // seconds since the fault began
  int named_in = 0;                   // windows since then
  std::optional<Slowness> named;
  bool cleared = false;
};

Outcome watch(const TraceConfig& config, double seconds) {
  Outcome outcome;
  StepTrace trace(config);
  StragglerDetector detector{StragglerConfig{}};
  detector.reset(config.ranks);
  const bool link = config.fault == Fault::slow_link;
  int windows_before = 0;
  while (trace.now() < seconds) {
    const StepTimes step = trace.next();
    const auto window = detector.add(at(trace.now()), step);
    if (!window) continue;
    ++outcome.windows;
    if (trace.now() < config.begins) windows_before = outcome.windows;
    for (const Slowness& slowness : window->raised) {
      ++outcome.alarms;
      const bool right = slowness.rank == config.rank && (slowness.peer >= 0) == link &&
                         config.factor > 1.05 && trace.now() > config.begins;
      if (!right || outcome.named) continue;
      ++outcome.right;
      outcome.named = slowness;
      outcome.named_after = trace.now() - config.begins;
      outcome.named_in = outcome.windows - windows_before;
    }
    outcome.cleared = outcome.cleared || !window->cleared.empty();
  }
  return outcome;
}

struct Score {
  int runs = 0, alarms = 0, right = 0, named = 0;
};

constexpr int kSeeds = 100;

// The fault in 100 settings; `check` looks at each outcome.
template <class Check>
Score try_all(Fault fault, double factor, Check check) {
  Score score;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    TraceConfig config = setting(seed);
    config.fault = fault;
    config.factor = factor;
    CAPTURE(seed);
    CAPTURE(config.ranks);
    CAPTURE(config.noise);
    CAPTURE(config.compute);
    const Outcome outcome = watch(config, 200);
    check(config, outcome);
    ++score.runs;
    score.alarms += outcome.alarms;
    score.right += outcome.right;
    score.named += outcome.named ? 1 : 0;
  }
  MESSAGE(score.named, " of ", score.runs, " named, ", score.alarms - score.right, " others");
  return score;
}

void never(const TraceConfig&, const Outcome& outcome) { CHECK(outcome.alarms == 0); }

void soon(const Outcome& outcome, double seconds) {
  REQUIRE(outcome.named);
  CHECK(outcome.alarms == 1);
  CHECK(outcome.named_in <= 5);
  CHECK(*outcome.named_after <= seconds);
}

int quiet_windows() {
  const char* wanted = std::getenv("DLAUNCH_TEST_QUIET_WINDOWS");
  return wanted != nullptr ? std::atoi(wanted) : 10'000;
}

// Windows of 5 digests, each of 10 like steps of 0.2 s.
struct Steady {
  explicit Steady(int ranks, StragglerConfig config = {}) : detector(config) {
    detector.reset(ranks);
    own.assign(static_cast<std::size_t>(ranks), 0.1);
  }
  StepTimes digest() const {
    StepTimes step{.steps = 10, .ranks = {}, .links = links};
    const double last = *std::max_element(own.begin(), own.end());
    for (const double time : own) {
      step.ranks.push_back({.late = time, .in_op = last + 0.1 - time, .step = last + 0.1});
    }
    return step;
  }
  StragglerDetector::Window window() {
    while (true) {
      now += 2500ms;
      if (auto closed = detector.add(now, digest())) return *closed;
    }
  }
  void warm_up() {
    CHECK(window().warmup);
    CHECK(window().warmup);
  }

  StragglerDetector detector;
  std::vector<double> own;
  std::vector<LinkTimes> links;
  TimePoint now{1000s};
};

}  // namespace

TEST_CASE("a rank of twice the time is named at once, as computing slowly") {
  try_all(Fault::slow_rank, 2, [](const TraceConfig&, const Outcome& outcome) {
    soon(outcome, 60);
    CHECK(outcome.named->phase == SlowPhase::before_op);
    CHECK(outcome.named->ratio == doctest::Approx(2).epsilon(0.15));
  });
}

TEST_CASE("a rank of 1.2 times the time is named, nearly always within 90 s") {
  int in_time = 0;
  const Score score = try_all(Fault::slow_rank, 1.2, [&](const auto&, const Outcome& outcome) {
    CHECK(outcome.alarms == outcome.right);
    in_time += outcome.named && *outcome.named_after <= 90 ? 1 : 0;
  });
  CHECK(in_time >= score.runs * 95 / 100);
  CHECK(score.named >= score.runs * 98 / 100);
}

TEST_CASE("a rank of 1.05 times the time is never named") {
  try_all(Fault::slow_rank, 1.05, never);
}

TEST_CASE("a rank that waits for its input is named, with the phase") {
  try_all(Fault::slow_input, 2, [](const TraceConfig&, const Outcome& outcome) {
    soon(outcome, 60);
    CHECK(outcome.named->phase == SlowPhase::input);
    CHECK(outcome.named->sentence.find("mostly waiting for input") != std::string::npos);
  });
}

TEST_CASE("a link of a tenth of the bandwidth is named, and none of its ranks") {
  try_all(Fault::slow_link, 10, [](const TraceConfig& config, const Outcome& outcome) {
    if (config.ranks < 3) return never(config, outcome);  // with what should it be compared?
    if (config.transfer * 9 < 0.1 * config.compute) {     // it hardly matters
      CHECK(outcome.alarms == outcome.right);
      return;
    }
    soon(outcome, 75);  // steps of up to 1 s
    CHECK(outcome.named->phase == SlowPhase::link);
    CHECK(outcome.named->peer == (config.rank + 1) % config.ranks);
  });
}

TEST_CASE("slowness that moves every 5 s names no rank") { try_all(Fault::moving, 2, never); }

TEST_CASE("if all ranks are slow, none is named") { try_all(Fault::all_slow, 2, never); }

TEST_CASE("a rank that is slow to start is not named") { try_all(Fault::slow_start, 3, never); }

TEST_CASE("quiet training raises no alarm") {
  int windows = 0, alarms = 0;
  for (std::uint64_t seed = 1000; windows < quiet_windows(); ++seed) {
    TraceConfig config = setting(seed);
    config.compute *= 3;  // windows of hardly more than 50 steps: those with the most noise
    const Outcome outcome = watch(config, 3000);
    windows += outcome.windows;
    alarms += outcome.alarms;
  }
  CHECK(alarms == 0);
  MESSAGE(windows, " windows");
}

TEST_CASE("three windows in a row raise it, and three below half of the excess clear it") {
  Steady steady(4);
  steady.warm_up();
  steady.own[2] = 0.15;
  CHECK(steady.window().raised.empty());
  CHECK(steady.window().raised.empty());
  const auto raised = steady.window().raised;
  REQUIRE(raised.size() == 1);
  CHECK(raised[0].rank == 2);
  CHECK(raised[0].ratio == doctest::Approx(1.5));
  CHECK(raised[0].gain == doctest::Approx(0.2));
  CHECK(raised[0].sentence ==
        "rank 2 takes 1.50x the time of the others between collectives: 150 ms, they 100 ms; "
        "without it a step of 250 ms would take 200 ms");
  for (int i = 0; i < 5; ++i) CHECK(steady.window().raised.empty());  // said once
  steady.own[2] = 0.107;                                              // no candidate, and not clear
  for (int i = 0; i < 5; ++i) CHECK(steady.window().cleared.empty());
  CHECK(steady.detector.slow().size() == 1);
  steady.own[2] = 0.102;
  CHECK(steady.window().cleared.empty());
  CHECK(steady.window().cleared.empty());
  const auto cleared = steady.window().cleared;
  REQUIRE(cleared.size() == 1);
  CHECK(cleared[0].rank == 2);
  CHECK(steady.detector.slow().empty());
}

TEST_CASE("two windows, one without, two windows: not in a row") {
  Steady steady(4);
  steady.warm_up();
  for (const double time : {0.15, 0.15, 0.1, 0.15, 0.15, 0.1}) {
    steady.own[1] = time;
    CHECK(steady.window().raised.empty());
  }
}

TEST_CASE("a new round forgets verdicts and warms up again") {
  Steady steady(4);
  steady.own[1] = 0.3;
  steady.warm_up();
  for (int i = 0; i < 3; ++i) steady.window();
  CHECK(steady.detector.slow().size() == 1);
  steady.detector.reset(4);
  CHECK(steady.detector.slow().empty());
  steady.warm_up();
  CHECK(steady.window().raised.empty());
}

TEST_CASE("two slow ranks are both named; neither alone would bring anything") {
  Steady steady(6);
  steady.warm_up();
  steady.own[1] = steady.own[4] = 0.2;
  steady.window();
  steady.window();
  const auto raised = steady.window().raised;
  REQUIRE(raised.size() == 2);
  CHECK(raised[0].rank == 1);
  CHECK(raised[1].rank == 4);
  CHECK(raised[0].gain == 0);
}

TEST_CASE("a rank with more work for which no rank waits is not slow") {
  Steady steady(4);
  steady.warm_up();
  for (int i = 0; i < 25; ++i) {
    StepTimes step = steady.digest();
    step.ranks[1].in_op = 0;  // twice the time outside, but it comes with the others
    step.ranks[1].step = 0.2;
    steady.now += 2500ms;
    const auto window = steady.detector.add(steady.now, step);
    if (window) CHECK(window->raised.empty());
  }
}

TEST_CASE("a rank that comes late but hardly computes longer is not slow") {
  Steady steady(4);
  steady.warm_up();
  for (int i = 0; i < 25; ++i) {
    StepTimes step = steady.digest();
    step.ranks[1].late += 0.05;  // a link let it go so late
    step.ranks[1].in_op -= 0.007;
    steady.now += 2500ms;
    const auto window = steady.detector.add(steady.now, step);
    if (window) CHECK(window->raised.empty());
  }
}

TEST_CASE("if ranks differ as much from each other, none is slow") {
  Steady steady(5);
  steady.own = {0.1, 0.13, 0.16, 0.19, 0.26};
  steady.warm_up();
  for (int i = 0; i < 5; ++i) CHECK(steady.window().raised.empty());
}

TEST_CASE("one of two ranks is not slow if its times vary as much") {
  Steady steady(2);
  for (int i = 0; i < 10; ++i) {
    for (const double time : {0.12, 0.2, 0.12, 0.2, 0.16}) {
      steady.own[0] = time;
      steady.now += 2500ms;
      const auto window = steady.detector.add(steady.now, steady.digest());
      if (window) CHECK(window->raised.empty());
    }
  }
}

TEST_CASE("a delay that is a tiny part of a step is not slow") {
  Steady steady(4);
  steady.own.assign(4, 0.001);
  steady.own[1] = 0.003;  // of a step of 0.1 s
  steady.warm_up();
  for (int i = 0; i < 5; ++i) CHECK(steady.window().raised.empty());
}

TEST_CASE("links are compared with their kind only") {
  Steady steady(8);
  for (int from = 0; from < 8; ++from) {  // in pairs of hosts: every other link is slower by nature
    steady.links.push_back({.from = from,
                            .to = (from + 1) % 8,
                            .kind = from % 2,
                            .bytes = 1e6,
                            .seconds = from % 2 == 0 ? 0.001 : 0.05});
  }
  steady.warm_up();
  for (int i = 0; i < 4; ++i) CHECK(steady.window().raised.empty());
  steady.links[1].seconds = 0.2;
  steady.window();
  steady.window();
  const auto raised = steady.window().raised;
  REQUIRE(raised.size() == 1);
  CHECK(raised[0].sentence ==
        "the link from rank 1 to rank 2 is 4.00x as slow as others of its kind: 5 MB/s, they 20 "
        "MB/s; it costs 150 ms of a step of 200 ms");
  steady.links[1].seconds = 0.06;
  steady.window();
  steady.window();
  CHECK(steady.window().cleared.size() == 1);
}

namespace {

// Each of n ranks with all others; a byte takes 1 ns.
std::vector<LinkTimes> full_mesh(int n) {
  std::vector<LinkTimes> links;
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (from == to) continue;
      links.push_back({.from = from, .to = to, .kind = 1, .bytes = 1e7, .seconds = 0.01});
    }
  }
  return links;
}

}  // namespace

TEST_CASE("where a rank takes its time, none of its links is slow") {
  Steady steady(4);
  steady.links = full_mesh(4);
  steady.warm_up();
  for (auto& link : steady.links) {
    if (link.from == 2 || link.to == 2) link.seconds = 0.1;
  }
  for (int i = 0; i < 5; ++i) CHECK(steady.window().raised.empty());
  steady.links = full_mesh(4);
  for (auto& link : steady.links) {  // both ways
    if (link.from + link.to == 3 && link.from * link.to == 2) link.seconds = 0.1;
  }
  steady.window();
  steady.window();
  const auto raised = steady.window().raised;
  REQUIRE(raised.size() == 2);
  for (const auto& slow : raised) CHECK(slow.rank + slow.peer == 3);
  CHECK(raised[0].sentence.find("from rank 1 to rank 2 is 10.00x") != std::string::npos);
  CHECK(raised[0].sentence.find("100 MB/s, they 1 GB/s") != std::string::npos);
}

TEST_CASE("a host's line is slow if all links from it, or to it, are slow") {
  StragglerConfig config;
  config.line_kind = 1;
  for (const bool out : {true, false}) {
    Steady steady(4, config);
    steady.links = full_mesh(4);
    steady.warm_up();
    for (auto& link : steady.links) {
      if ((out ? link.from : link.to) == 2) link.seconds = 0.1;
    }
    std::vector<Slowness> raised;
    for (int i = 0; i < 4; ++i) {
      const auto window = steady.window();
      raised.insert(raised.end(), window.raised.begin(), window.raised.end());
    }
    REQUIRE(raised.size() == 1);
    CHECK(raised[0].rank == 2);
    CHECK(raised[0].peer == (out ? kToAll : kFromAll));
    CHECK(raised[0].sentence.starts_with(
        out ? "the links from rank 2 to all others are 10.00x as slow as the rest: 100 MB/s, they "
              "1 "
              "GB/s; "
            : "the links to rank 2 from all others are 10.00x as slow as the rest: "));
    steady.links = full_mesh(4);
    for (int i = 0; i < 2; ++i) CHECK(steady.window().cleared.empty());
    CHECK(steady.window().cleared.size() == 1);
  }
}

TEST_CASE("a host's line that is slow both ways is named once, and so is one in a ring") {
  StragglerConfig config;
  config.line_kind = 1;
  std::vector<LinkTimes> ring;
  for (int from = 0; from < 3; ++from) {
    ring.push_back({.from = from, .to = (from + 1) % 3, .kind = 1, .bytes = 1e7, .seconds = 0.01});
  }
  for (const auto& links : {full_mesh(3), full_mesh(5), ring}) {
    CAPTURE(links.size());
    int ranks = 0;
    for (const auto& link : links) ranks = std::max(ranks, link.from + 1);
    Steady steady(ranks, config);
    steady.links = links;
    steady.warm_up();
    for (auto& link : steady.links) {
      if (link.from == 2 || link.to == 2) link.seconds = 0.1;
    }
    std::vector<Slowness> raised;
    for (int i = 0; i < 6; ++i) {
      if (i == 4) steady.links[0].seconds *= 1.2;
      const auto window = steady.window();
      raised.insert(raised.end(), window.raised.begin(), window.raised.end());
    }
    REQUIRE(raised.size() == 1);
    CHECK(raised[0].rank == 2);
    CHECK(raised[0].peer == kBothWays);
    CHECK(raised[0].sentence ==
          "the links between rank 2 and all others are 10.00x as slow as the rest: 100 MB/s, they "
          "1 GB/s; it costs 90 ms of a step of 200 ms");
    for (auto& link : steady.links) link.seconds = 0.1;  // now all are slow alike
    std::vector<Slowness> cleared;
    for (int i = 0; i < 3; ++i) {
      const auto window = steady.window();
      CHECK(window.raised.empty());
      cleared.insert(cleared.end(), window.cleared.begin(), window.cleared.end());
    }
    CHECK(cleared.size() == 1);
  }
}

TEST_CASE(
    "what slow links cost: the largest share for each rank at fault, from the third look on") {
  LinkCosts costs(2);
  StepTimes step{.steps = 1, .ranks = {{.step = 0.2}, {.step = 0.2}, {.step = 0.2}}, .links = {}};
  step.links = full_mesh(3);
  for (auto& link : step.links) link.seconds = link.from == 1 && link.to == 2 ? 0.1 : 0.01;
  for (const bool sees : {false, false, true}) CHECK(costs.add(step).contains(1) == sees);
  const auto shares = costs.add(step);
  REQUIRE(shares.size() == 1);
  CHECK(shares.at(1) == doctest::Approx(0.45));
  step.ranks[0].step = -1;  // nonsense
  CHECK(costs.add(step).empty());
  step.ranks[0].step = 0.2;
  CHECK(costs.add(step).size() == 1);
  costs.new_round();
  CHECK(costs.add(step).empty());
}

TEST_CASE("links are judged if half of the steps have their times") {
  for (const bool often : {true, false}) {
    CAPTURE(often);
    StragglerDetector detector{StragglerConfig{}};
    detector.reset(4);
    StepTimes step{.steps = 10, .ranks = {}, .links = {}};
    for (int r = 0; r < 4; ++r) step.ranks.push_back({.late = 0.1, .in_op = 0.1, .step = 0.2});
    std::size_t raised = 0;
    for (int i = 0; i < 60; ++i) {
      step.links = full_mesh(4);
      step.links[4].seconds = 0.1;
      if ((i % 3 == 0) == often) step.links.erase(step.links.begin() + 4);
      if (const auto window = detector.add(at(i * 1.0), step)) raised += window->raised.size();
    }
    CHECK(raised == (often ? 1 : 0));
  }
}

TEST_CASE("the ratio decides what is slow") {
  for (const double ratio : {1.05, 1.3}) {
    Steady steady(4, {.ratio = ratio});
    steady.warm_up();
    steady.own[0] = 0.12;
    steady.window();
    steady.window();
    CHECK(steady.window().raised.size() == (ratio < 1.2 ? 1 : 0));
  }
}

TEST_CASE("a window has its steps, its time and five samples") {
  StragglerDetector detector{StragglerConfig{}};
  detector.reset(2);
  const StepTimes one{.steps = 1, .ranks = {{.step = 1}, {.step = 1}}, .links = {}};
  for (int i = 0; i < 49; ++i) CHECK_FALSE(detector.add(at(i * 0.25), one));
  CHECK(detector.add(at(12.25), one));  // 50 steps
  for (int i = 0; i < 100; ++i) CHECK_FALSE(detector.add(at(50 + i * 0.05), one));
  CHECK(detector.add(at(60), one));  // 10 s
  for (int i = 0; i < 19; ++i) CHECK_FALSE(detector.add(at(100 + i), one));
  CHECK(detector.add(at(119), one));  // 20 steps, which took more than 15 s
  StepTimes many = one;
  many.steps = 100;
  for (int i = 0; i < 4; ++i) CHECK_FALSE(detector.add(at(200 + i * 10), many));
  CHECK(detector.add(at(240), many));  // 5 samples
}

TEST_CASE("steps that cannot be used are left out") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const RankTimes fine{.step = 1};
  const std::vector<StepTimes> bad = {
      {.steps = 1, .ranks = {fine}, .links = {}},
      {.steps = 0, .ranks = {fine, fine}, .links = {}},
      {.steps = 1, .ranks = {fine, {.step = nan}}, .links = {}},
      {.steps = 1, .ranks = {fine, {.step = 0}}, .links = {}},
      {.steps = 1, .ranks = {fine, {.late = nan, .step = 1}}, .links = {}},
      {.steps = 1, .ranks = {fine, {.in_op = -1, .step = 1}}, .links = {}},
      {.steps = 1, .ranks = {fine, {.step = 1, .input = -1}}, .links = {}},
      {.steps = 1, .ranks = {fine, fine}, .links = {{.bytes = 0, .seconds = 1}}},
      {.steps = 1, .ranks = {fine, fine}, .links = {{.bytes = 1, .seconds = nan}}},
  };
  for (const StepTimes& step : bad) {
    StragglerDetector detector{{.window_steps = 1, .window_time = 0s}};
    detector.reset(2);
    for (int i = 0; i < 10; ++i) CHECK_FALSE(detector.add(at(i), step));
  }
  StragglerDetector alone{{.window_steps = 1, .window_time = 0s}};
  alone.reset(1);
  for (int i = 0; i < 10; ++i) CHECK_FALSE(alone.add(at(i), bad[0]));
}
