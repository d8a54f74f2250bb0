#include "elastic/host_health.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Links = std::vector<HostHealth::Link>;

struct Said {
  Links test, admit;
  std::string told;
};

Said step(HostHealth& health, TimePoint now, const HostHealth::Event& event) {
  Said said;
  for (const auto& action : health.step(now, event)) {
    if (const auto* test = std::get_if<HostHealth::Test>(&action)) said.test.push_back(test->link);
    if (const auto* in = std::get_if<HostHealth::Admit>(&action)) said.admit.push_back(in->link);
    if (const auto* tell = std::get_if<HostHealth::Tell>(&action)) said.told += tell->line + "\n";
  }
  return said;
}

// It fails at `now`, is left out for a while, and then tested again, at the new `now`.
Duration left_out(HostHealth& health, TimePoint& now, HostHealth::Link link, std::string why) {
  const auto said = step(health, now, HostHealth::Tested{link, std::move(why)});
  CHECK(said.test.empty());
  CHECK(said.admit.empty());
  const auto next = health.deadline();
  REQUIRE(next);
  CHECK(step(health, *next - 1ms, HostHealth::Clock{}).test.empty());
  const Duration pause = *next - now;
  now = *next;
  CHECK(step(health, now, HostHealth::Clock{}).test == Links{link});
  return pause;
}

bool is_about(Duration pause, Duration expected) {
  return pause >= expected * 3 / 4 && pause <= expected * 5 / 4;
}

}  // namespace

TEST_CASE("a joining host is tested, and taken in once it is healthy") {
  HostHealth health(1);
  const auto came = step(health, kStart, HostHealth::Comes{7, "a"});
  CHECK(came.test == Links{7});
  CHECK(came.admit.empty());
  CHECK(health.words(kStart) == std::vector<std::string>{"a: being tested"});
  CHECK_FALSE(health.deadline());
  const auto again = step(health, kStart + 1ms, HostHealth::Comes{7, "a"});
  CHECK(again.test.empty());
  const auto well = step(health, kStart + 1s, HostHealth::Tested{7, ""});
  CHECK(well.admit == Links{7});
  CHECK(well.told.empty());
  CHECK(health.words(kStart + 1s).empty());
  CHECK(step(health, kStart + 2s, HostHealth::Tested{7, ""}).admit.empty());
}

TEST_CASE("an unexpected answer admits no host") {
  HostHealth health(1);
  CHECK(step(health, kStart, HostHealth::Tested{7, ""}).admit.empty());
  (void)step(health, kStart, HostHealth::Comes{7, "a"});
  (void)step(health, kStart, HostHealth::Tested{7, "sick"});
  const auto twice = step(health, kStart, HostHealth::Tested{7, ""});
  CHECK(twice.admit.empty());
  CHECK(twice.test.empty());
}

TEST_CASE("a host that fails stays out, for longer each time, with one warning for each reason") {
  HostHealth health(1);
  TimePoint now = kStart;
  (void)step(health, now, HostHealth::Comes{7, "a"});
  CHECK(is_about(left_out(health, now, 7, "hot"), 1s));
  CHECK(is_about(left_out(health, now, 7, "hot"), 2s));
  CHECK(is_about(left_out(health, now, 7, "hot"), 10s));
  CHECK(is_about(left_out(health, now, 7, "hot"), 20s));
  CHECK(step(health, now, HostHealth::Tested{7, "hot"}).told.empty());
  now = *health.deadline();
  (void)step(health, now, HostHealth::Clock{});
  const auto other = step(health, now, HostHealth::Tested{7, "cold"});
  CHECK(other.told.find("host a failed its health check and gets no workers: cold; ") == 0);
  const auto words = health.words(now);
  REQUIRE(words.size() == 1);
  CHECK(words[0].find("a: not healthy, tested again in ") == 0);
  CHECK(words[0].ends_with(": cold"));
  now = *health.deadline();
  CHECK(step(health, now, HostHealth::Clock{}).test == Links{7});
  CHECK(step(health, now, HostHealth::Tested{7, ""}).admit == Links{7});
  // All is forgiven.
  (void)step(health, now, HostHealth::Comes{8, "a"});
  CHECK(is_about(left_out(health, now, 8, "hot"), 1s));
}

TEST_CASE("a restarted dlaunch of the host waits as long; other hosts do not") {
  HostHealth health(1);
  (void)step(health, kStart, HostHealth::Comes{7, "a"});
  CHECK(step(health, kStart, HostHealth::Tested{7, "hot"}).told.find("host a ") == 0);
  (void)step(health, kStart, HostHealth::Gone{7});
  CHECK_FALSE(health.deadline());
  CHECK(step(health, kStart + 1ms, HostHealth::Comes{8, "a"}).test.empty());
  CHECK(step(health, kStart + 2ms, HostHealth::Comes{9, "b"}).test == Links{9});
  CHECK(step(health, kStart + 2s, HostHealth::Clock{}).test == Links{8});
  const auto same = step(health, kStart + 2s, HostHealth::Tested{8, "hot"});
  CHECK(same.told.empty());
}

TEST_CASE("a connection that ends during the test does not count against the host") {
  HostHealth health(1);
  (void)step(health, kStart, HostHealth::Comes{7, "a"});
  const auto gone = step(health, kStart, HostHealth::Gone{7});
  CHECK(gone.told.empty());
  CHECK(step(health, kStart, HostHealth::Comes{8, "a"}).test == Links{8});
}
