#include "elastic/host_starts.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Actions = std::vector<HostStarts::Action>;

// Hosts a, b, c …
HostStarts starts_of(int hosts, HostStarts::Config config) {
  std::vector<HostStarts::Host> list;
  for (int i = 0; i < hosts; ++i) {
    list.push_back({.name = std::string(1, static_cast<char>('a' + i))});
  }
  return {config, std::move(list)};
}

std::vector<int> logins(const Actions& actions) {
  std::vector<int> nodes;
  for (const auto& action : actions) {
    if (const auto* login = std::get_if<HostStarts::LogIn>(&action)) nodes.push_back(login->node);
  }
  return nodes;
}

std::vector<int> leaving(const Actions& actions) {
  std::vector<int> nodes;
  for (const auto& action : actions) {
    if (const auto* leave = std::get_if<HostStarts::Leave>(&action)) nodes.push_back(leave->node);
  }
  return nodes;
}

std::string told(const Actions& actions) {
  std::string lines;
  for (const auto& action : actions) {
    if (const auto* tell = std::get_if<HostStarts::Tell>(&action)) lines += tell->line + "\n";
  }
  return lines;
}

// Until its next attempt; it is not at once.
Duration pause_of(HostStarts& starts, TimePoint& now) {
  const auto next = starts.deadline();
  REQUIRE(next);
  REQUIRE(*next > now);
  const Duration pause = *next - now;
  CHECK(logins(starts.step(*next - 1ms, HostStarts::Clock{})).empty());
  now = *next;
  CHECK(logins(starts.step(now, HostStarts::Clock{})) == std::vector{0});
  return pause;
}

bool about(Duration pause, Duration expected) {
  return pause >= expected * 3 / 4 && pause <= expected * 5 / 4 + 1ms;
}

}  // namespace

TEST_CASE("a limit of logins at once, in the order of the hosts; the own host needs none") {
  HostStarts starts({.at_once = 2},
                    {{.name = "a"}, {.name = "me", .here = true}, {.name = "c"}, {.name = "d"}});
  CHECK(logins(starts.step(kStart, HostStarts::Start{})) == std::vector{0, 2});
  CHECK_FALSE(starts.deadline());
  CHECK(logins(starts.step(kStart, HostStarts::Ready{2})) == std::vector{3});
  CHECK(logins(starts.step(kStart, HostStarts::Failed{0, false, "no"})).empty());
  CHECK_FALSE(starts.all_answered());
  CHECK(starts.step(kStart, HostStarts::Ready{3}).empty());
  CHECK(starts.all_answered());
  CHECK(starts.words(kStart, 0) == "lost: no");
  CHECK(starts.words(kStart, 2).empty());
  CHECK(starts.words(kStart, 1).empty());
}

TEST_CASE("a job that grants no restart has none of its hosts started again") {
  HostStarts starts = starts_of(1, {});
  TimePoint now = kStart;
  starts.step(now, HostStarts::Start{});
  starts.step(now, HostStarts::Ready{0});
  CHECK(starts.step(now, HostStarts::Ended{0, "killed"}).empty());
  CHECK_FALSE(starts.deadline());
}

TEST_CASE("a host out of reach is tried again less and less often, with one warning") {
  HostStarts starts = starts_of(1, {.again = true});
  TimePoint now = kStart;
  starts.step(now, HostStarts::Start{});
  starts.step(now, HostStarts::Ready{0});
  CHECK(told(starts.step(now += 1h, HostStarts::Ended{0, "its ssh was ended by SIGKILL"}))
            .starts_with("host a: its ssh was ended by SIGKILL; starting it again in "));
  CHECK(about(pause_of(starts, now), 1s));
  CHECK(told(starts.step(now, HostStarts::Failed{0, false, "refused"}))
            .starts_with("host a: refused; starting it again in "));
  for (const auto pause : {1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    CHECK(about(pause_of(starts, now), pause));
    CHECK(told(starts.step(now, HostStarts::Failed{0, false, "refused"})).empty());
  }
  CHECK(starts.words(now, 0).starts_with("started again in "));
  CHECK(starts.words(now, 0).ends_with(": refused"));
  CHECK(about(pause_of(starts, now), 60s));
  // It is back, and the next failure counts from one again.
  starts.step(now, HostStarts::Ready{0});
  starts.step(now += 1h, HostStarts::Ended{0, "x"});
  CHECK(about(pause_of(starts, now), 1s));
}

TEST_CASE("a host that is lost repeatedly is started after longer pauses, up to an hour") {
  HostStarts starts = starts_of(1, {.again = true});
  TimePoint now = kStart;
  starts.step(now, HostStarts::Start{});
  std::string lines;
  for (const Duration pause : {Duration(1s), Duration(2s), Duration(10s), Duration(20s),
                               Duration(40s), Duration(80s), Duration(160s), Duration(320s),
                               Duration(640s), Duration(1280s), Duration(2560s), Duration(1h)}) {
    starts.step(now, HostStarts::Ready{0});
    lines = told(starts.step(now += 30s, HostStarts::Ended{0, "its ssh was ended by SIGKILL"}));
    CHECK(about(pause_of(starts, now), pause));
  }
  CHECK(lines.starts_with(
      "host a failed 12 times in a row (its ssh was ended by SIGKILL); it is left alone for "));
  // Ten minutes without a fault, and it is a host like others.
  starts.step(now, HostStarts::Ready{0});
  starts.step(now += 10min, HostStarts::Ended{0, "x"});
  CHECK(about(pause_of(starts, now), 1s));
}

TEST_CASE("a host that is reached but cannot take part counts as a failure, too") {
  HostStarts starts = starts_of(1, {.again = true});
  TimePoint now = kStart;
  starts.step(now, HostStarts::Start{});
  CHECK(told(starts.step(now, HostStarts::Failed{0, true, "no program"})).empty());  // one of all
  CHECK(about(pause_of(starts, now), 1s));
  starts.step(now, HostStarts::Failed{0, true, "no program"});
  CHECK(about(pause_of(starts, now), 2s));
  starts.step(now, HostStarts::Failed{0, true, "no program"});
  CHECK(starts.words(now, 0).starts_with("left alone for "));
  CHECK(starts.words(now, 0).ends_with(" after 3 failures: no program"));
  CHECK(about(pause_of(starts, now), 10s));
}

TEST_CASE("a newly listed host gets a free place with enough slots") {
  HostStarts starts(
      {.again = true},
      {{.name = "a", .slots = 2}, {.name = "", .slots = 2}, {.name = "", .slots = 4}});
  CHECK(logins(starts.step(kStart, HostStarts::Start{})) == std::vector{0});
  starts.step(kStart, HostStarts::Ready{0});
  CHECK(starts.all_answered());
  CHECK(starts.step(kStart, HostStarts::List{{{"a", 2}}}).empty());
  const auto more = starts.step(kStart, HostStarts::List{{{"a", 2}, {"small", 1}, {"big", 8}}});
  CHECK(logins(more) == std::vector{1});
  CHECK(starts.name(1) == "big");
  CHECK(told(more) ==
        "host small with 1 slots is listed, but the job has no place for it\n"
        "host big is listed; starting it\n");
  CHECK(starts.step(kStart, HostStarts::List{{{"a", 2}, {"small", 1}, {"big", 8}}}).empty());
  CHECK(logins(starts.step(kStart, HostStarts::List{{{"a", 2}, {"c", 4}, {"big", 8}}})) ==
        std::vector{2});
}

TEST_CASE("a host that is no longer listed leaves, and then another host gets its place") {
  HostStarts starts({.again = true}, {{.name = "me", .here = true}, {.name = "a"}, {.name = "b"}});
  starts.step(kStart, HostStarts::Start{});
  starts.step(kStart, HostStarts::Ready{1});
  starts.step(kStart, HostStarts::Failed{2, false, "no"});
  const auto less = starts.step(kStart, HostStarts::List{{{"c"}}});
  CHECK(leaving(less) == std::vector{1});
  CHECK(logins(less) == std::vector{2});  // that of b, which was not there
  CHECK(starts.words(kStart, 1) == "leaving: it is not listed any more");
  CHECK(starts.step(kStart, HostStarts::List{{{"c"}}}).empty());
  CHECK(told(starts.step(kStart, HostStarts::List{{{"c"}, {"d"}}})).find("no place") !=
        std::string::npos);
  CHECK(starts.step(kStart, HostStarts::Ended{1, "well"}).empty());
  CHECK(logins(starts.step(kStart, HostStarts::List{{{"c"}, {"d"}}})) == std::vector{1});
  CHECK(starts.name(1) == "d");
}

namespace {

// One machine that logs in to others: the work of each ssh waits for one of its cores.
struct Launcher {
  explicit Launcher(int cores) : free_at(static_cast<std::size_t>(cores)) {}
  double login(double now, std::mt19937& random) {
    constexpr double kWork = 0.08;
    std::lognormal_distribution<double> time(std::log(0.25), 0.6);  // 1 s: 2.33 deviations
    double& core = *std::min_element(free_at.begin(), free_at.end());
    const double begin = std::max(now, core);
    core = begin + kWork;
    return begin + std::max(kWork, time(random));
  }
  std::vector<double> free_at;
};

Duration in_seconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

double flat(int hosts, int at_once, int cores) {
  HostStarts starts({.at_once = at_once},
                    std::vector<HostStarts::Host>(static_cast<std::size_t>(hosts), {.name = "h"}));
  Launcher launcher(cores);
  std::mt19937 random(1);
  using Answer = std::pair<double, int>;
  std::priority_queue<Answer, std::vector<Answer>, std::greater<>> answers;
  double now = 0;
  int under_way = 0;
  const auto perform = [&](const Actions& actions) {
    for (const int node : logins(actions)) {
      answers.emplace(launcher.login(now, random), node);
      CHECK(++under_way <= at_once);
    }
  };
  perform(starts.step(kStart, HostStarts::Start{}));
  while (!answers.empty()) {
    const auto [at, node] = answers.top();
    answers.pop();
    now = at;
    --under_way;
    perform(starts.step(kStart + in_seconds(now), HostStarts::Ready{node}));
  }
  CHECK(starts.all_answered());
  return now;
}

// Each host that is logged in to starts its share of the rest, so many children of one at once.
double tree(int hosts, int children, int cores, double now, std::mt19937& random) {
  Launcher launcher(cores);
  double last = now;
  const int own = std::min(hosts, children);
  for (int child = 0; child < own; ++child) {
    const double there = launcher.login(now, random);
    const int share = (hosts - own) / own + (child < (hosts - own) % own);
    last = std::max({last, there, share > 0 ? tree(share, children, cores, there, random) : there});
  }
  return last;
}

}  // namespace

TEST_CASE("a thousand simulated hosts: limited by this machine's cores, and by the logins") {
  for (const auto& [hosts, at_once, cores, most] : {std::tuple{100, 32, 2, 6.0},
                                                    {100, 32, 16, 3.0},
                                                    {100, 128, 16, 3.0},
                                                    {1000, 32, 2, 45.0},
                                                    {1000, 32, 16, 13.0},
                                                    {1000, 128, 16, 8.0}}) {
    const double seconds = flat(hosts, at_once, cores);
    MESSAGE(hosts << " hosts, " << at_once << " at once, " << cores << " cores: " << seconds
                  << " s");
    CHECK(seconds <= most);
    CHECK(seconds >= hosts * 0.08 / cores);
  }
  for (const int hosts : {100, 1000}) {
    std::mt19937 random(1);
    const double seconds = tree(hosts, 32, 16, 0, random);
    MESSAGE(hosts << " hosts, a tree of 32: " << seconds << " s");
    CHECK(seconds <= 6);
  }
}

TEST_CASE("a host that the user drains leaves, and is not started again until it may be") {
  HostStarts starts = starts_of(2, {.again = true});
  TimePoint now = kStart;
  starts.step(now, HostStarts::Start{});
  for (const int node : {0, 1}) starts.step(now, HostStarts::Ready{node});
  CHECK(leaving(starts.step(now, HostStarts::Drain{0})) == std::vector{0});
  CHECK(starts.words(now, 0) == "");
  SUBCASE("it has left") {
    CHECK(starts.step(now, HostStarts::Ended{0, "it ended"}).empty());
    CHECK_FALSE(starts.deadline());
    // Nor is another host of the list put in its place, or itself.
    CHECK(logins(starts.step(now, HostStarts::List{{{"a"}, {"b"}, {"c"}}})).empty());
    CHECK(logins(starts.step(now, HostStarts::Undrain{0})) == std::vector{0});
  }
  SUBCASE("it was not told to end yet") {
    CHECK(starts.step(now, HostStarts::Undrain{0, true}).empty());
    CHECK_FALSE(starts.deadline());
    starts.step(now, HostStarts::Ended{0, "it ended"});
    CHECK(starts.deadline());  // as any that is lost
  }
  SUBCASE("it was told, and has not ended yet") {
    CHECK(logins(starts.step(now, HostStarts::Undrain{0})).empty());
    CHECK(logins(starts.step(now, HostStarts::Ended{0, "it ended"})) == std::vector{0});
  }
  SUBCASE("it was lost before") {
    starts.step(now, HostStarts::Ended{1, "lost"});
    starts.step(now, HostStarts::Drain{1});
    CHECK_FALSE(starts.deadline());
  }
}
