#include "elastic/restart_policy.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// A policy, and failures, each of its own round unless a test says otherwise.
struct World {
  explicit World(RestartPolicyConfig config) : policy(std::move(config)) {}

  RestartDecision fail(Failure failure = {}) {
    if (failure.round == 0) failure.round = ++round;
    return policy.failed(now, failure);
  }
  // A failure with a signature, at this version.
  RestartDecision fail_like(std::uint64_t signature, std::uint64_t version, Duration after = 10s) {
    return fail({.signature = signature, .version = version, .after = after});
  }
  RestartDecision fail_after(std::uint64_t version) { return fail({.version = version}); }
  int granted() {  // restarts until it stops
    int count = 0;
    while (count < 1000 && fail().restart) ++count;
    return count;
  }

  RestartPolicy policy;
  TimePoint now{1000s};
  int round = 0;
};

RestartPolicyConfig with(int restarts, std::optional<Duration> window = {}) {
  return {.limit = {restarts, window}};
}

}  // namespace

TEST_CASE("a limit as it is written on the command line") {
  const auto plain = parse_restart_limit("3", "--max-restarts");
  REQUIRE(plain);
  CHECK(plain->restarts == 3);
  CHECK_FALSE(plain->window);
  CHECK(format_restart_limit(*plain) == "3");
  for (const std::string text : {"0", "10/1h", "2/10m", "2/15m", "5/90s", "1/0.5s"}) {
    const auto limit = parse_restart_limit(text, "--max-restarts");
    REQUIRE(limit);
    CHECK(format_restart_limit(*limit) == text);
  }
  CHECK(*parse_restart_limit("10/1h", "")->window == 1h);
}

TEST_CASE("a limit that makes no sense") {
  for (const auto* text : {"", "-1", "x", "1.5", "3/", "/1h", "3/0", "3/1h/2", "3/-1s", "3/soon"}) {
    const auto limit = parse_restart_limit(text, "--max-restarts");
    REQUIRE_FALSE(limit);
    CHECK(limit.error().code == Errc::usage);
    CHECK(limit.error().what.starts_with("--max-restarts"));
  }
}

TEST_CASE("without a window: so many restarts in all, whatever time and progress") {
  World world(with(3));
  CHECK(world.policy.left(world.now) == 3);
  CHECK(world.fail_after(1000).restart);
  world.now += 24h;
  CHECK(world.fail_after(2000).why == "restart 2 (--max-restarts 3) at once");
  CHECK(world.fail_after(3000).restart);
  CHECK(world.policy.left(world.now) == 0);
  const auto decision = world.fail_after(4000);
  CHECK_FALSE(decision.restart);
  CHECK(decision.reason == StopReason::job_budget);
  CHECK(decision.why == "all 3 restarts (--max-restarts) are used");
  CHECK(world.policy.used() == 3);
}

TEST_CASE("without a window there are no shares: one slot may use all restarts") {
  RestartPolicyConfig config = with(3);
  config.nodes = 2;
  config.slots = 8;
  World world(config);
  for (int i = 0; i < 3; ++i) CHECK(world.fail({.slot = 5, .node = 1}).restart);
  CHECK_FALSE(world.fail({.slot = 5, .node = 1}).restart);
}

TEST_CASE("no restarts allowed") {
  for (const auto window : {std::optional<Duration>(), std::optional<Duration>(1h)}) {
    World world(with(0, window));
    const auto decision = world.fail();
    CHECK_FALSE(decision.restart);
    CHECK(decision.why == "no restarts are allowed (--max-restarts)");
    CHECK(world.policy.left(world.now) == 0);
  }
}

TEST_CASE("with a window: time refills the budget, up to its size") {
  World world(with(4, 1h));
  CHECK(world.granted() == 4);
  CHECK(world.policy.left(world.now) == 0);
  world.now += 14min;
  CHECK(world.fail().why ==
        "the budget of 4 restarts within 1h (--max-restarts 4/1h) is used up; the next comes in "
        "60 s");
  world.now += 1min;
  CHECK(world.policy.left(world.now) == 1);
  CHECK(world.granted() == 1);
  world.now += 30min;
  CHECK(world.granted() == 2);
  world.now += 24h;
  CHECK(world.policy.left(world.now) == 4);
  CHECK(world.granted() == 4);
}

TEST_CASE("with a window: each 100 commits give back a restart") {
  World world(with(2, 24h));
  CHECK(world.fail_after(10).restart);
  CHECK(world.fail_after(11).restart);
  CHECK_FALSE(world.fail_after(60).restart);
  CHECK(world.fail_after(111).restart);
  CHECK_FALSE(world.fail_after(150).restart);
  CHECK(world.fail_after(1000).restart);
  CHECK(world.fail_after(1000).restart);
  CHECK_FALSE(world.fail_after(1000).restart);
}

TEST_CASE("steps that are done again are no progress") {
  World world(with(1, 1000h));
  CHECK(world.fail_after(1000).restart);
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(world.fail_after(100).restart);
    CHECK_FALSE(world.fail_after(1000).restart);
  }
}

TEST_CASE("a node and a slot have a share of the budget, if there are several") {
  RestartPolicyConfig config = with(12, 1h);
  config.nodes = 4;
  config.slots = 32;
  World world(config);
  const auto fail_until_refused = [&](Failure failure) {
    int count = 0;
    while (true) {
      failure.round = ++world.round;
      const auto decision = world.policy.failed(world.now, failure);
      if (!decision.restart) return std::pair(count, decision);
      ++count;
    }
  };
  auto [by_slot, slot_stop] = fail_until_refused({.slot = 5, .node = 1, .dispensable = true});
  CHECK(by_slot == 3);
  CHECK(slot_stop.reason == StopReason::slot_budget);
  CHECK(slot_stop.why ==
        "slot 5's share of 3 restarts within 1h (--max-restarts 12/1h) is used up; the next comes "
        "in 1200 s");
  auto [by_node, node_stop] =
      fail_until_refused({.slot = -1, .node = 1, .kind = FailureKind::lost, .dispensable = true});
  CHECK(by_node == 3);  // with those of its slot
  CHECK(node_stop.reason == StopReason::node_budget);
  CHECK(node_stop.why.starts_with("node 1's share of 6 restarts"));
  auto [others, job_stop] = fail_until_refused({.slot = -1, .node = 2, .dispensable = true});
  CHECK(others == 6);
  CHECK(job_stop.reason == StopReason::job_budget);
  CHECK(world.policy.used() == 12);
  world.now += 20min;
  CHECK(world.fail({.slot = 5, .node = 3, .dispensable = true}).restart);
  CHECK_FALSE(world.fail({.slot = 5, .node = 3, .dispensable = true}).restart);
}

TEST_CASE("the message about a single restart says so") {
  World world(with(1));
  world.fail();
  CHECK(world.fail().why == "the only restart (--max-restarts 1) is used");
}

TEST_CASE("a refused restart is charged to no budget") {
  RestartPolicyConfig config = with(8, 1h);
  config.slots = 2;
  World world(config);
  for (int i = 0; i < 10; ++i) world.fail({.slot = 0, .dispensable = true});
  CHECK(world.policy.used() == 2);
  CHECK(world.policy.left(world.now) == 6);
}

TEST_CASE("the only node and the only slot have no share") {
  World world(with(10, 1h));
  for (int i = 0; i < 10; ++i) CHECK(world.fail({.slot = 0, .node = 0}).restart);
  RestartPolicyConfig config = with(10, 1h);
  config.nodes = 2;
  World two(config);
  for (int i = 0; i < 5; ++i) CHECK(two.fail({.dispensable = true}).restart);
  CHECK_FALSE(two.fail({.dispensable = true}).restart);
}

TEST_CASE("the first restart is at once, those of a crash loop wait longer and longer") {
  Duration longest[12] = {}, sum[12] = {};
  constexpr int kSeeds = 400;
  for (int seed = 0; seed < kSeeds; ++seed) {
    RestartPolicyConfig config = with(100);
    config.seed = static_cast<std::uint64_t>(seed);
    World world(config);
    for (int i = 0; i < 12; ++i) {
      const auto decision = world.fail();
      REQUIRE(decision.restart);
      longest[i] = std::max(longest[i], decision.delay);
      sum[i] += decision.delay;
    }
  }
  const Duration bounds[12] = {0s, 1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s, 60s, 60s, 60s};
  for (int i = 0; i < 12; ++i) {
    CHECK(longest[i] <= bounds[i]);
    CHECK(longest[i] >= bounds[i] * 9 / 10);
    CHECK(sum[i] / kSeeds >= bounds[i] * 4 / 10);  // full jitter: half of it on average
    CHECK(sum[i] / kSeeds <= bounds[i] * 6 / 10);
  }
}

TEST_CASE("the same seed gives the same delays") {
  World one(with(100)), two(with(100));
  for (int i = 0; i < 20; ++i) CHECK(one.fail().delay == two.fail().delay);
}

TEST_CASE("a commit ends a crash loop") {
  World world(with(100));
  for (int i = 0; i < 8; ++i) world.fail_after(0);
  CHECK(world.fail_after(1).delay == 0s);
  CHECK(world.fail_after(1).delay <= 1s);
}

TEST_CASE("a long run ends a crash loop if commits are not reported") {
  World world(with(100));
  Duration delay{};
  for (int i = 0; i < 8; ++i) delay = world.fail().delay;
  CHECK(delay > 0s);
  world.now += delay + 10min;
  CHECK(world.fail().delay == 0s);
}

TEST_CASE("restarts that dlaunch or the scheduler chose are free") {
  for (const auto kind : {FailureKind::evicted, FailureKind::preempted, FailureKind::voluntary}) {
    World world(with(1));
    for (int i = 0; i < 10; ++i) {
      const auto decision = world.fail({.kind = kind, .signature = 7, .version = 3});
      CHECK(decision.restart);
      CHECK(decision.delay == 0s);
    }
    CHECK(world.policy.used() == 0);
    CHECK(world.fail_like(7, 3).restart);
  }
}

TEST_CASE("exit codes that mean: no restart") {
  RestartPolicyConfig config = with(10);
  config.final_exit_codes = {2, 78};
  World world(config);
  CHECK(world.fail({.code = 1}).restart);
  CHECK(world.fail({.kind = FailureKind::signal, .code = 2}).restart);
  const auto decision = world.fail({.code = 78});
  CHECK_FALSE(decision.restart);
  CHECK(decision.reason == StopReason::exit_code);
  CHECK(decision.why == "exit code 78 is one of --no-restart-codes");
  CHECK(option_of(decision.reason) == "--no-restart-codes");
}

TEST_CASE("the same failure at the same commit is deterministic, whichever slot it is in") {
  World world(with(10));
  CHECK(world.fail({.slot = 1, .signature = 7, .version = 40, .after = 59s}).restart);
  CHECK(world.fail({.slot = 2, .signature = 8, .version = 40, .after = 59s}).restart);
  const auto decision = world.fail({.slot = 3, .signature = 7, .version = 40, .after = 59s});
  CHECK_FALSE(decision.restart);
  CHECK(decision.reason == StopReason::same_failure);
  CHECK(decision.why ==
        "the same failure as in round 1, also within a minute after commit 40: it would come again "
        "(--same-failure-limit 2; with off the job goes on)");
  CHECK(option_of(decision.reason) == "--same-failure-limit");
}

TEST_CASE("the same failure long after the commit is of another step") {
  World world(with(100));
  for (int i = 0; i < 50; ++i) CHECK(world.fail_like(7, 40, 1min).restart);
  CHECK(world.fail_like(7, 40, 59s).restart);
  CHECK_FALSE(world.fail_like(7, 40, 59s).restart);
}

TEST_CASE("the same failure at another commit, or one that is not known, is not") {
  World world(with(10));
  CHECK(world.fail_like(7, 40).restart);
  CHECK(world.fail_like(7, 41).restart);
  CHECK(world.fail_like(0, 50).restart);
  CHECK(world.fail_like(0, 50).restart);
}

TEST_CASE("before any commit: the same failure twice within a minute of the start, not at once") {
  World world(with(10));
  CHECK(world.fail_like(7, 0, 3s).restart);
  CHECK(world.fail_like(7, 0, 2h).restart);
  world.now += 9s;
  CHECK(world.fail_like(7, 0, 5s).restart);  // perhaps it passes
  world.now += 1s;
  CHECK(world.fail({.signature = 7, .exact = 1, .after = 5s}).restart);  // "fail at step 300", 600
  CHECK(world.fail_like(7, 0, 1min).restart);
  const auto decision = world.fail_like(7, 0, 5s);
  CHECK_FALSE(decision.restart);
  CHECK(decision.why ==
        "the same failure as in round 1, also within a minute of the start: it would come again "
        "(--same-failure-limit 2; with off the job goes on)");
  World late(with(10));
  CHECK(late.fail_like(7, 0, 2h).restart);
  late.now += 10s;
  CHECK(late.fail_like(7, 0, 5s).restart);
}

TEST_CASE("a host that is lost twice at the same commit proves nothing") {
  World world(with(10));
  for (int i = 0; i < 5; ++i) {
    CHECK(world.fail({.kind = FailureKind::lost, .signature = 7, .version = 40}).restart);
  }
  CHECK(world.fail_like(7, 40).restart);
  CHECK(world.fail({.kind = FailureKind::lost, .signature = 7, .version = 40}).restart);
}

TEST_CASE("ranks that fail alike in one round are one failure, and one charge") {
  World world(with(3));
  const auto first = world.fail({.round = 1, .slot = 0, .signature = 7});
  CHECK(first.restart);
  for (int slot = 1; slot < 8; ++slot) {
    CHECK(world.fail({.round = 1, .slot = slot, .signature = 7}).restart);
  }
  CHECK(world.policy.used() == 1);
  world.now += 10s;
  CHECK_FALSE(world.fail({.round = 2, .slot = 0, .signature = 7}).restart);

  World later(with(3));
  for (int slot = 0; slot < 8; ++slot) {
    CHECK(later.fail({.round = 1, .slot = slot, .signature = 7, .version = 40}).restart);
  }
  CHECK(later.policy.used() == 1);
}

TEST_CASE("however many ranks fail alike, another failure of their round still counts") {
  World world(with(3));
  CHECK(world.fail({.round = 1, .signature = 6, .version = 40}).restart);
  for (int slot = 0; slot < 100; ++slot) {
    world.fail({.round = 1, .slot = slot, .signature = 7, .version = 40});
  }
  CHECK_FALSE(world.fail({.round = 2, .signature = 6, .version = 40}).restart);
}

TEST_CASE("later failures of a round share its decision, and the rest of its delay") {
  World world(with(100));
  for (int i = 0; i < 9; ++i) world.fail();
  const auto first = world.fail({.round = 50});
  REQUIRE(first.delay > 2s);
  world.now += 1s;
  CHECK(world.fail({.round = 50}).delay == first.delay - 1s);
  world.now += 2min;
  CHECK(world.fail({.round = 50}).delay == 0s);
  World none(with(0));
  CHECK_FALSE(none.fail({.round = 1}).restart);
  CHECK(none.fail({.round = 1}).reason == StopReason::job_budget);
}

TEST_CASE("a later failure of a round may still forbid the restart") {
  RestartPolicyConfig config = with(10);
  config.final_exit_codes = {78};
  World world(config);
  CHECK(world.fail({.round = 1, .code = 1}).restart);
  CHECK_FALSE(world.fail({.round = 1, .code = 78}).restart);
}

TEST_CASE("the number of same failures that ends the job, or off") {
  RestartPolicyConfig config = with(100);
  config.same_failures = 4;
  World world(config);
  for (int i = 0; i < 3; ++i) CHECK(world.fail_like(7, 40).restart);
  CHECK(world.fail_like(8, 40).restart);
  CHECK(world.fail_like(7, 40).why ==
        "the same failure as in rounds 1, 2 and 3, also within a minute after commit 40: it would "
        "come again (--same-failure-limit 4; with off the job goes on)");
  config.same_failures = 0;
  World off(config);
  int count = 0;
  while (off.fail_like(7, 40).restart) ++count;
  CHECK(count == 100);
}

TEST_CASE("a limit of same failures as it is written on the command line") {
  CHECK(*parse_same_failures("off", "") == 0);
  CHECK(*parse_same_failures("2", "") == 2);
  for (const auto* text : {"", "0", "1", "-2", "on", "2/10m"}) {
    const auto limit = parse_same_failures(text, "--same-failure-limit");
    REQUIRE_FALSE(limit);
    CHECK(limit.error().what.starts_with("--same-failure-limit"));
  }
}

TEST_CASE("failures without a commit between them end nothing: only the budget does") {
  for (const std::uint64_t version : {0, 50}) {
    World unknown(with(30));  // known only to have failed
    World differing(with(30));
    int count = 0;
    while (unknown.fail({.version = version}).restart) ++count;
    CHECK(count == 30);
    for (count = 0; differing.fail_like(static_cast<std::uint64_t>(count) + 1, version).restart;) {
      ++count;
    }
    CHECK(count == 30);
  }
}

TEST_CASE("a worker that was ended from outside is never the same failure") {
  const auto granted = [](FailureKind kind, int code) {
    World world(with(50));
    int count = 0;
    while (count < 100) {
      world.now += 20s;
      const Failure failure{
          .kind = kind, .code = code, .signature = 7, .exact = 7, .version = 5, .after = 1s};
      if (!world.fail(failure).restart) break;
      ++count;
    }
    return count;
  };
  for (const int signal : {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGPWR}) {
    CAPTURE(signal);
    CHECK(granted(FailureKind::signal, signal) == 50);
    CHECK(granted(FailureKind::exit_code, 128 + signal) == 50);  // as a shell says it
  }
  CHECK(granted(FailureKind::lost, 0) == 50);
  CHECK(granted(FailureKind::hung, 0) == 50);
  CHECK(granted(FailureKind::corrupt, 1) == 50);
  // The program does these itself.
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGXCPU}) {
    CAPTURE(signal);
    CHECK(granted(FailureKind::signal, signal) == 1);
    CHECK(granted(FailureKind::exit_code, 128 + signal) == 1);
  }
  CHECK(granted(FailureKind::exit_code, 1) == 1);
  CHECK(granted(FailureKind::exit_code, 255) == 1);
  CHECK(granted(FailureKind::out_of_memory, SIGKILL) == 1);
}

TEST_CASE("rounds that are given up use the job's budget, and may be the same failure") {
  const auto give_up = [](World& world, int round, std::uint64_t words = 0, Duration after = 10s) {
    return world.policy.given_up(world.now, {.round = round,
                                             .kind = FailureKind::gave_up,
                                             .signature = words,
                                             .exact = words,
                                             .version = 5,
                                             .after = after});
  };
  World world(with(2));
  CHECK(give_up(world, 1).restart);
  CHECK(give_up(world, 1).restart);
  CHECK(world.fail({.round = 1}).restart);  // who was lost in it after all
  CHECK(world.policy.used() == 1);
  CHECK(give_up(world, 2).delay == 0s);
  CHECK(world.policy.used() == 2);
  CHECK(give_up(world, 3).reason == StopReason::job_budget);

  World windowed(with(8, 1h));  // no slot's, no node's share
  for (int round = 1; round <= 8; ++round) CHECK(give_up(windowed, round).restart);
  CHECK_FALSE(give_up(windowed, 9).restart);

  World stuck(with(100));
  for (int round = 1; round <= 9; ++round) CHECK(give_up(stuck, round, 7, 5min).restart);
  CHECK(give_up(stuck, 10, 7).restart);
  CHECK(give_up(stuck, 11, 8).restart);
  CHECK(give_up(stuck, 12, 7).reason == StopReason::same_failure);
}

TEST_CASE("a used-up share stops only a host or slot that the job does not need") {
  RestartPolicyConfig config = with(8, 1h);
  config.slots = 4;
  World world(config);
  for (int i = 0; i < 2; ++i) CHECK(world.fail({.slot = 1, .dispensable = true}).restart);
  CHECK(world.fail({.round = 50, .slot = 1, .dispensable = true}).reason ==
        StopReason::slot_budget);
  CHECK(world.fail({.round = 50, .slot = 1}).restart);  // of the same round
  for (int i = 0; i < 5; ++i) CHECK(world.fail({.slot = 1}).restart);
  CHECK(world.fail({.slot = 1}).reason == StopReason::job_budget);
  CHECK(world.policy.used() == 8);
}

TEST_CASE("whether the latest restart was for a worker that SIGTERM had ended") {
  const auto used = [](FailureKind kind, int code) {
    World world(with(3));
    world.fail({.kind = kind, .code = code});
    return world.policy.used_for_sigterm();
  };
  CHECK(used(FailureKind::signal, SIGTERM) == 1);
  CHECK(used(FailureKind::exit_code, 128 + SIGTERM) == 1);  // as shells say it
  CHECK(used(FailureKind::exit_code, SIGTERM) == 0);
  CHECK(used(FailureKind::signal, SIGKILL) == 0);
  World world(with(3));
  world.fail({.kind = FailureKind::signal, .code = SIGTERM});
  world.policy.given_up(world.now, {.round = ++world.round, .kind = FailureKind::gave_up});
  CHECK(world.policy.used_for_sigterm() == 0);
}

TEST_CASE("the restarts left from an earlier run do not exceed the present limit") {
  World world(with(3));
  world.policy.go_on(world.now, 2, 8, 0);
  CHECK(world.policy.used() == 2);
  CHECK(world.granted() == 3);
  World refills(with(4, 4min));
  refills.policy.go_on(refills.now, 4, 0, 1000);  // commits that are lost
  CHECK(refills.granted() == 0);
  refills.now += 2min;
  CHECK(refills.granted() == 2);
}

TEST_CASE("errors about a lost peer count only if their round has no other cause") {
  constexpr std::uint64_t kPeerLost = 1, kCause = 2, kOther = 3;
  World world(with(10));
  const auto victim = [&](int round) {
    return world.fail(
        {.round = round, .slot = 1, .signature = kPeerLost, .second_hand = true, .version = 5});
  };
  const auto cause = [&](int round, std::uint64_t signature) {
    return world.fail({.round = round, .slot = 0, .signature = signature, .version = 5});
  };
  SUBCASE("other causes, heard of after what followed from them") {
    for (int round = 1; round <= 3; ++round) {
      CHECK(victim(round).restart);
      CHECK(cause(round, kCause + static_cast<std::uint64_t>(round)).restart);
    }
  }
  SUBCASE("unknown causes") {
    for (int round = 1; round <= 3; ++round) {
      CHECK(victim(round).restart);
      CHECK(cause(round, 0).restart);
    }
  }
  SUBCASE("lost hosts, which are noticed later") {
    for (int round = 1; round <= 3; ++round) {
      CHECK(victim(round).restart);
      CHECK(world.fail({.round = round + 10, .kind = FailureKind::lost, .version = 5}).restart);
    }
  }
  SUBCASE("the same cause") {
    CHECK(victim(1).restart);
    CHECK(cause(1, kCause).restart);
    CHECK(victim(2).restart);
    CHECK(cause(2, kCause).reason == StopReason::same_failure);
  }
  SUBCASE("no cause") {
    CHECK(victim(1).restart);
    CHECK(victim(2).reason == StopReason::same_failure);
  }
  SUBCASE("the cause of another round explains nothing") {
    CHECK(victim(1).restart);
    CHECK(cause(2, kOther).restart);
    CHECK(victim(3).reason == StopReason::same_failure);
  }
}

TEST_CASE("a worker that also failed while it was stopped may forbid a restart, and costs none") {
  RestartPolicyConfig config = with(3);
  config.final_exit_codes = {7};
  World world(config);
  CHECK(world.fail({.round = 1, .signature = 1, .second_hand = true, .version = 5}).restart);
  CHECK_FALSE(world.policy.failed_too(world.now, {.round = 1, .signature = 2, .version = 5}));
  CHECK(world.policy.used() == 1);
  const auto code = world.policy.failed_too(world.now, {.round = 1, .code = 7});
  REQUIRE(code);
  CHECK(code->reason == StopReason::exit_code);
  CHECK_FALSE(world.policy.failed_too(world.now, {.round = 1, .kind = FailureKind::evicted}));
  CHECK(world.fail({.round = 2, .signature = 1, .second_hand = true, .version = 5}).restart);
  const auto again = world.policy.failed_too(world.now, {.round = 2, .signature = 2, .version = 5});
  REQUIRE(again);
  CHECK(again->why.starts_with(
      "the same failure as in round 1, also within a minute after commit 5"));
}
