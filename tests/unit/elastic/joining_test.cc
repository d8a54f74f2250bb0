// The leader's answer to a host that asks to join, and the time that an agent looks for a leader.
#include <doctest/doctest.h>

#include "base/version.h"
#include "elastic/admission.h"
#include "elastic/leader_search.h"
#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Answer = Admission::Answer;
using Next = LeaderSearch::Next;

const JoinRequest kFresh{.host = "b", .job = "x"};
const JoinState kGathering{.job = "x", .run = "4f", .leader = "a"};

JoinRequest back(const std::string& run, bool has_workers = true) {
  JoinRequest request = kFresh;
  request.run = run;
  request.has_workers = has_workers;
  return request;
}

JoinState with(bool JoinState::*flag, JoinState state = kGathering) {
  state.*flag = true;
  return state;
}

}  // namespace

TEST_CASE("a fresh host joins while the job gathers, and is tested once the job has begun") {
  CHECK(admit(kFresh, kGathering).answer == Answer::take_in);
  CHECK(admit(kFresh, with(&JoinState::begun)).answer == Answer::test);
}

TEST_CASE("a host that does not fit is refused, with the reason") {
  JoinRequest other = kFresh;
  other.job = "y";
  CHECK(admit(other, kGathering).answer == Answer::refuse);
  CHECK(admit(other, kGathering).why == "host b was started with y; here it is x");
  JoinRequest mixed = kFresh;
  mixed.build = 7;
  CHECK(admit(mixed, with(&JoinState::drained)).why ==
        "host b runs another build of dlaunch " DLAUNCH_VERSION
        ": install the same build on all hosts");
  CHECK(admit(kFresh, with(&JoinState::drained)).why ==
        "host b is drained: 'dlaunchctl undrain b' on host a lets it come back");
  CHECK(admit(kFresh, with(&JoinState::starter_gone)).why ==
        "what started this dlaunch on host b has ended");
  // Before all else: what was started otherwise is not of this job at all.
  CHECK(admit(other, with(&JoinState::drained)).why.starts_with("host b was started with y"));
}

TEST_CASE("workers of another run are ended, and with an elected leader their host is refused") {
  CHECK(admit(back("77"), kGathering).answer == Answer::clear);
  CHECK(admit(back("77", false), kGathering).answer == Answer::clear);
  const auto refused = admit(back("77"), with(&JoinState::elects));
  CHECK(refused.answer == Answer::refuse);
  CHECK(refused.why == "the job that host b was in is over");
}

TEST_CASE("a continued job takes workers of its run in, until it has begun") {
  const JoinState continued = with(&JoinState::continues);
  CHECK(admit(back("4f"), continued).answer == Answer::take_in);
  CHECK(admit(back("4f"), with(&JoinState::begun, continued)).answer == Answer::clear);
  CHECK(admit(back("4f"), kGathering).answer == Answer::clear);
  CHECK(admit(back("4f", false), kGathering).answer == Answer::take_in);
}

TEST_CASE("while hosts of an earlier time may come, fresh ones wait") {
  const JoinState waits = with(&JoinState::awaits_earlier, with(&JoinState::continues));
  CHECK(admit(kFresh, waits).answer == Answer::wait);
  CHECK(admit(back("4f"), waits).answer == Answer::take_in);
}

TEST_CASE("an agent looks for its first leader for --join-timeout") {
  LeaderSearch search({.join_timeout = 60s}, kStart);
  CHECK(search.failed(kStart + 1s, {"no route"}, false) == Next::wait);
  CHECK(search.failed(kStart + 6s, {"no route"}, false) == Next::warn);
  CHECK(search.failed(kStart + 12s, {"no route"}, false) == Next::wait);  // said already
  CHECK(search.failed(kStart + 13s, {"refused", true}, false) == Next::warn);
  CHECK(search.failed(kStart + 14s, {"no route"}, false) == Next::wait);  // too soon
  CHECK(search.failed(kStart + 60s, {"refused", true}, false) == Next::wait);
  CHECK(search.failed(kStart + 61s, {"refused", true}, false) == Next::cannot_join);
}

TEST_CASE("an attempt that can never succeed is the last") {
  LeaderSearch search({.join_timeout = 60s}, kStart);
  CHECK(search.failed(kStart + 1s, {"another secret", false, true}, false) == Next::cannot_join);
}

TEST_CASE("if no process listens at a lost leader's address, ten seconds are enough") {
  LeaderSearch search({.join_timeout = 60s}, kStart);
  search.lost(kStart + 100s, false);
  CHECK(search.failed(kStart + 109s, {"refused", true}, false) == Next::warn);
  CHECK(search.failed(kStart + 111s, {"no route"}, false) == Next::wait);
  CHECK(search.failed(kStart + 111s, {"refused", true}, false) == Next::cannot_join);

  LeaderSearch returns({.leader_returns = true, .join_timeout = 60s}, kStart);
  returns.lost(kStart, false);
  CHECK(returns.failed(kStart + 59s, {"refused", true}, false) == Next::warn);
  CHECK(returns.failed(kStart + 61s, {"refused", true}, false) == Next::cannot_join);
}

TEST_CASE("workers that outlive their leader wait for it, and end if it does not come back") {
  LeaderSearch search({.join_timeout = 60s}, kStart);
  search.lost(kStart, true);
  CHECK(search.failed(kStart + 30s, {"refused", true}, true) == Next::warn);
  CHECK(search.failed(kStart + 61s, {"refused", true}, true) == Next::not_restarted);

  LeaderSearch elected({.elects = true, .join_timeout = 60s}, kStart);
  elected.lost(kStart, true);
  CHECK(elected.failed(kStart + 59s, {"refused", true}, true) == Next::warn);
  CHECK(elected.failed(kStart + 61s, {"refused", true}, true) == Next::cannot_join);
}
