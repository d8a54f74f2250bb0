#include "elastic/host_starts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <set>
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

// By whom, and where.
std::vector<std::pair<int, int>> logins_by(const Actions& actions) {
  std::vector<std::pair<int, int>> pairs;
  for (const auto& action : actions) {
    const auto* login = std::get_if<HostStarts::LogIn>(&action);
    if (login != nullptr) pairs.emplace_back(login->by, login->node);
  }
  return pairs;
}

std::vector<int> taken_back(const Actions& actions) {
  std::vector<int> nodes;
  for (const auto& action : actions) {
    if (const auto* back = std::get_if<HostStarts::TakeBack>(&action)) nodes.push_back(back->node);
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

// Each host that logs in has so many cores. A host that cannot log in to others fails as fast as it
// would have succeeded.
double until_all_answered(int hosts, HostStarts::Config config, int cores, bool keys = true) {
  HostStarts starts(config,
                    std::vector<HostStarts::Host>(static_cast<std::size_t>(hosts), {.name = "h"}));
  std::map<int, Launcher> launchers;
  std::map<int, int> under_way;
  std::mt19937 random(1);
  using Answer = std::tuple<double, int, int>;  // the node, and who has logged in
  std::priority_queue<Answer, std::vector<Answer>, std::greater<>> answers;
  std::map<int, int> by_of;
  std::set<int> forgotten;
  double now = 0;
  const auto perform = [&](const Actions& actions) {
    // Nothing is left to do now: else the caller would spin.
    if (const auto deadline = starts.deadline()) CHECK(*deadline > kStart + in_seconds(now));
    for (const auto& action : actions) {
      if (const auto* back = std::get_if<HostStarts::TakeBack>(&action)) {
        forgotten.insert(back->node);
        --under_way[by_of[back->node]];
      }
      const auto* login = std::get_if<HostStarts::LogIn>(&action);
      if (login == nullptr) continue;
      by_of[login->node] = login->by;
      Launcher& launcher = launchers.try_emplace(login->by, cores).first->second;
      answers.emplace(launcher.login(now, random), login->node, login->by);
      CHECK(++under_way[login->by] <= config.at_once);
    }
  };
  perform(starts.step(kStart, HostStarts::Start{}));
  while (!answers.empty()) {
    const auto [at, node, by] = answers.top();
    answers.pop();
    if (by != HostStarts::kSelf && forgotten.contains(node)) continue;
    now = at;
    --under_way[by];
    const TimePoint then = kStart + in_seconds(now);
    if (by != HostStarts::kSelf && !keys) {
      perform(starts.step(then, HostStarts::Refused{node, "no key"}));
      continue;
    }
    perform(starts.step(then, HostStarts::Ready{node}));
    perform(starts.step(then, HostStarts::Linked{node, true}));
  }
  CHECK(starts.all_answered());
  return now;
}

double told_seconds(int hosts, HostStarts::Config config, int cores, bool keys = true) {
  const double seconds = until_all_answered(hosts, config, cores, keys);
  MESSAGE(hosts << " hosts, " << config.at_once << " at once, " << cores << " cores, tree "
                << std::to_string(static_cast<int>(config.tree))
                << std::string(keys ? "" : " without keys") << ": " << seconds << " s");
  return seconds;
}

using Logins = std::vector<std::pair<int, int>>;
constexpr int kSelf = HostStarts::kSelf;

// Hosts a to f, two at once. a and b run, and this process logs in to c. With Tree::attempt it also
// logs in to d, because it may have that room; else it keeps to its share.
HostStarts begun(HostStarts::Tree tree) {
  HostStarts starts = starts_of(6, {.at_once = 2, .again = true, .tree = tree});
  starts.step(kStart, HostStarts::Start{});
  starts.step(kStart, HostStarts::Ready{0});
  starts.step(kStart, HostStarts::Ready{1});
  return starts;
}

}  // namespace

TEST_CASE("a thousand simulated hosts: limited by this machine's cores, and by the logins") {
  for (const auto& [hosts, at_once, cores, most] : {std::tuple{100, 32, 2, 6.0},
                                                    {100, 32, 16, 3.0},
                                                    {100, 128, 16, 3.0},
                                                    {256, 32, 2, 14.0},
                                                    {256, 32, 16, 5.0},
                                                    {1000, 32, 2, 45.0},
                                                    {1000, 32, 16, 13.0},
                                                    {1000, 128, 16, 8.0}}) {
    const double seconds = told_seconds(hosts, {.at_once = at_once}, cores);
    CHECK(seconds <= most);
    CHECK(seconds >= hosts * 0.08 / cores);
  }
}

TEST_CASE("simulated hosts that log in to others: 256 are there in twice the time of 32") {
  for (const auto tree : {HostStarts::Tree::on, HostStarts::Tree::attempt}) {
    for (const int cores : {2, 16}) {
      const HostStarts::Config config{.tree = tree};
      const double few = told_seconds(32, config, cores);
      CHECK(few == until_all_answered(32, {}, cores));
      CHECK(told_seconds(256, config, cores) <= 2 * few);
      CHECK(told_seconds(1000, config, cores) <= 3 * few);
    }
  }
}

TEST_CASE("simulated hosts that cannot log in to others are there as soon as without the attempt") {
  for (const int hosts : {32, 33, 40, 256, 1000}) {
    const HostStarts::Config attempt{.tree = HostStarts::Tree::attempt};
    const double flat = until_all_answered(hosts, {}, 16);
    CHECK(told_seconds(hosts, attempt, 16, false) <= flat * 1.05 + 0.5);
  }
}

TEST_CASE("hosts that fit into the first logins form no tree") {
  for (const auto tree : {HostStarts::Tree::on, HostStarts::Tree::attempt}) {
    HostStarts starts = starts_of(3, {.at_once = 3, .again = true, .tree = tree});
    CHECK(logins_by(starts.step(kStart, HostStarts::Start{})) ==
          Logins{{kSelf, 0}, {kSelf, 1}, {kSelf, 2}});
    starts.step(kStart, HostStarts::Ready{0});
    starts.step(kStart, HostStarts::Linked{0, true});
    // Nor does a single host that is started again later.
    starts.step(kStart, HostStarts::Ready{1});
    starts.step(kStart, HostStarts::Ready{2});
    starts.step(kStart, HostStarts::Ended{1, "lost"});
    CHECK(logins_by(starts.step(*starts.deadline(), HostStarts::Clock{})) == Logins{{kSelf, 1}});
  }
}

TEST_CASE("started hosts share the others among them") {
  HostStarts starts = begun(HostStarts::Tree::on);
  CHECK(logins_by(starts.step(kStart, HostStarts::Linked{0, true})) == Logins{{0, 3}});
  CHECK(logins_by(starts.step(kStart, HostStarts::Linked{1, true})) == Logins{{1, 4}});
  CHECK(logins_by(starts.step(kStart, HostStarts::Ready{2})) == Logins{{kSelf, 5}});
  for (const int node : {3, 4, 5}) starts.step(kStart, HostStarts::Ready{node});
  CHECK(starts.all_answered());
}

TEST_CASE("attempts of hosts to log in to others cost no time if they cannot") {
  HostStarts starts = begun(HostStarts::Tree::attempt);
  CHECK(logins_by(starts.step(kStart, HostStarts::Linked{0, true})) == Logins{{0, 4}});
  CHECK(logins_by(starts.step(kStart, HostStarts::Linked{1, true})) == Logins{{1, 5}});
  SUBCASE("one succeeds: the other goes on") {
    CHECK(starts.step(kStart, HostStarts::Ready{4}).empty());
    CHECK(starts.step(kStart, HostStarts::Ready{2}).empty());
  }
  SUBCASE("one fails: this process logs in to all others, and says so once") {
    const auto refused = starts.step(kStart, HostStarts::Refused{4, "Permission denied"});
    CHECK(told(refused) ==
          "host a did not start host e (Permission denied): this host logs in to all further "
          "hosts; --ssh-tree off has it log in to all hosts itself\n");
    CHECK(logins_by(refused).empty());
    CHECK(logins_by(starts.step(kStart, HostStarts::Ready{2})) == Logins{{kSelf, 4}});
    const auto last = starts.step(kStart, HostStarts::Ready{3});
    CHECK(taken_back(last) == std::vector{5});
    CHECK(logins_by(last) == Logins{{kSelf, 5}});
    // The failure of that login is a failure like others.
    CHECK(starts.step(kStart, HostStarts::Failed{4, false, "unreachable"}).empty());
    CHECK(starts.words(kStart, 4).starts_with("started again in "));
  }
  SUBCASE("one succeeds, then one fails: this process takes the third back when it has room") {
    starts.step(kStart, HostStarts::Ready{4});
    starts.step(kStart, HostStarts::Ended{4, "lost"});
    const TimePoint later = *starts.deadline();
    CHECK(logins_by(starts.step(later, HostStarts::Clock{})) == Logins{{0, 4}});
    CHECK(logins_by(starts.step(later, HostStarts::Refused{4, "no key"})).empty());
    const auto back = starts.step(later, HostStarts::Ready{2});
    CHECK(logins_by(back) == Logins{{kSelf, 4}});
    const auto last = starts.step(later, HostStarts::Ready{3});
    CHECK(taken_back(last) == std::vector{5});
    CHECK(logins_by(last) == Logins{{kSelf, 5}});
  }
  SUBCASE("no other host waits any more: this process takes one back when it has room") {
    const auto back = starts.step(kStart, HostStarts::Ready{2});
    CHECK(taken_back(back) == std::vector{4});
    CHECK(logins_by(back) == Logins{{kSelf, 4}});
    CHECK(told(back).empty());
    CHECK(starts.step(kStart, HostStarts::Refused{4, "no key"}).empty());  // too late
  }
}

TEST_CASE("before one has succeeded, started hosts attempt no more than eight logins") {
  HostStarts starts = starts_of(26, {.at_once = 4, .tree = HostStarts::Tree::attempt});
  starts.step(kStart, HostStarts::Start{});
  std::vector<std::pair<int, int>> attempts;
  for (const int node : {0, 1, 2, 3}) {
    starts.step(kStart, HostStarts::Ready{node});
    for (const auto& pair : logins_by(starts.step(kStart, HostStarts::Linked{node, true}))) {
      attempts.push_back(pair);
    }
  }
  CHECK(attempts.size() == 8);
  CHECK(logins_by(starts.step(kStart, HostStarts::Ready{attempts[0].second})).size() > 1);
}

TEST_CASE("a host that did not log in to another is not asked again, if hosts should log in") {
  HostStarts starts = begun(HostStarts::Tree::on);
  starts.step(kStart, HostStarts::Linked{0, true});
  starts.step(kStart, HostStarts::Linked{1, true});
  starts.step(kStart, HostStarts::Ready{2});
  const auto refused = starts.step(kStart, HostStarts::Refused{3, "no key"});
  CHECK(logins_by(refused) == Logins{{kSelf, 3}});
  CHECK(told(refused) ==
        "host a did not start host d (no key): this host does it, also after later failures, "
        "which it does not report; --ssh-tree off has it log in to all hosts itself\n");
  CHECK(starts.step(kStart, HostStarts::Refused{4, "no key"}).empty());
  CHECK(logins_by(starts.step(kStart, HostStarts::Ready{5})) == Logins{{kSelf, 4}});
  for (const int node : {3, 4}) starts.step(kStart, HostStarts::Ready{node});
  CHECK(starts.all_answered());
}

TEST_CASE("a host is lost, or is slow, while it logs in to others: this process takes them over") {
  HostStarts starts = begun(HostStarts::Tree::on);
  starts.step(kStart, HostStarts::Linked{0, true});
  starts.step(kStart, HostStarts::Linked{1, true});
  starts.step(kStart, HostStarts::Ready{2});
  SUBCASE("lost") {
    const auto lost = starts.step(kStart, HostStarts::Linked{0, false});
    CHECK(taken_back(lost) == std::vector{3});
    CHECK(logins_by(lost) == Logins{{kSelf, 3}});
  }
  SUBCASE("another dlaunch has taken its place") {
    CHECK(taken_back(starts.step(kStart, HostStarts::Linked{0, true})) == std::vector{3});
  }
  SUBCASE("lost, after the other has answered") {
    starts.step(kStart, HostStarts::Ready{3});
    CHECK(starts.step(kStart, HostStarts::Linked{0, false}).empty());
    CHECK(
        told(starts.step(kStart, HostStarts::Ended{0, "killed"})).starts_with("host a: killed; "));
    CHECK(starts.words(kStart, 3).empty());
  }
  SUBCASE("slow") {
    CHECK(starts.deadline() == kStart + 15s);
    CHECK(starts.step(kStart + 14s, HostStarts::Clock{}).empty());
    const auto late = starts.step(kStart + 15s, HostStarts::Clock{});
    CHECK(taken_back(late) == std::vector{3, 4});
    CHECK(logins_by(late) == Logins{{kSelf, 3}});
    CHECK(told(late).starts_with("host a did not start host d (no success within 15 s): "));
  }
  SUBCASE("slow, like others") {
    starts.step(kStart + 10s, HostStarts::Ready{4});
    CHECK(starts.deadline() == kStart + 20s);
  }
  SUBCASE("slow, but not for ever") {
    starts.step(kStart + 10min, HostStarts::Ready{4});
    CHECK(starts.deadline() == kStart + 60s);
  }
  SUBCASE("the configuration of this host's ssh is needed: no failure") {
    CHECK(logins_by(starts.step(kStart, HostStarts::Refused{3, ""})) == Logins{{kSelf, 3}});
  }
  SUBCASE("the user drains the other") {
    const auto drained = starts.step(kStart, HostStarts::Drain{3});
    CHECK(taken_back(drained) == std::vector{3});
    CHECK(leaving(drained).empty());
    CHECK(starts.step(kStart, HostStarts::Refused{3, "ended"}).empty());
    CHECK(logins_by(starts.step(kStart, HostStarts::Undrain{3})).size() == 1);
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
