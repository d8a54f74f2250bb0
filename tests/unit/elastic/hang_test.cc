#include "elastic/hang.h"

#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "hang_world.h"
#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("a rank that does not come: warning, stacks, replacement, once") {
  HangWorld world = one_missing();
  world.run(300s);
  const std::string what = "rank 3 has not entered all_reduce #17, where rank 0-2 are waiting";
  CHECK(world.take_log() ==
        Log{
            "30.25 warn 3: " + what + ", for 30 s now; it is replaced after 60 s",
            "58.25 dump 0,3",
            "60.25 replace 3: " + what + ", for 60 s",
        });
}

TEST_CASE("the judge asks to be called when something is due, and needs no more samples then") {
  HangWorld world(HangConfig{.hang_timeout = 1s, .dump_time = 500ms});
  CHECK_FALSE(world.judge.deadline());
  world.put(0, 1, true);
  world.put(1, 0, false);
  world.sample();
  for (const Duration due : {500ms, 750ms, 1000ms}) {
    REQUIRE(world.judge.deadline() == TimePoint(1000s) + due);
    world.now = *world.judge.deadline();
    world.feed(HangJudge::Clock{});
    CHECK(world.take_log().size() == 1);
  }
  CHECK_FALSE(world.judge.deadline());
}

TEST_CASE("who comes late is only warned of") {
  HangWorld world = one_missing();
  world.run(45s);
  CHECK(world.take_log().size() == 1);
  world.put_all(4, 17, false);
  world.run(1s);
  CHECK(world.take_log() == Log{"45.25 warn 3: rank 3 has not entered all_reduce #17, where rank "
                                "0-2 are waiting: this is over"});
}

TEST_CASE("of two that are missing one comes: the other one's wait goes on") {
  HangWorld world;
  world.put_all(4, 16, false);
  for (const int rank : {0, 1}) world.put(rank, 17, true);
  world.run(50s);
  CHECK(world.take_log().size() == 1);
  world.put(2, 17, true);
  world.run(20s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 3);
  CHECK(log[0].starts_with("50.25 warn 3: rank 3 has not entered"));
  CHECK(log[1] == "58.25 dump 0,3");
  CHECK(log[2].starts_with("60.25 replace 3: "));
}

TEST_CASE("steps that take most of the limit are no hang") {
  HangWorld world;
  for (std::uint64_t seq = 1; seq < 20; ++seq) {
    world.put(0, seq, true);
    world.run(28s);
    world.put(1, seq, true);
    world.run(1s);
    world.put_all(2, seq, false);
  }
  CHECK(world.take_log() == Log{});
}

TEST_CASE("data that moves within a collective is motion") {
  HangWorld world;
  world.put_all(2, 1, true);
  for (int i = 0; i < 20; ++i) {
    check_quiet(world, 20s);
    world.put_all(2, 1, true);
  }
}

TEST_CASE("all have entered, one does not come out: that one") {
  HangWorld world;
  world.put_all(3, 8, false);
  world.put(1, 8, true);
  world.run(70s);
  const std::string what = "all have entered all_reduce #8, but rank 1 has not come out of it";
  CHECK(world.take_log() ==
        Log{
            "30.25 warn 1: " + what + ", for 30 s now; it is replaced after 60 s",
            "58.25 dump 1",
            "60.25 replace 1: " + what + ", for 60 s",
        });
  CHECK(world.judge.waits(world.now, 60s).at(0).waiting == RankSet{1});
}

TEST_CASE("all have entered and nobody comes out: all") {
  HangWorld world;
  world.put_all(2, 8, true);
  world.run(70s);
  const std::string what = "all have entered all_reduce #8, but rank 0-1 have not come out of it";
  CHECK(world.take_log() ==
        Log{
            "30.25 warn 0: " + what + ", for 30 s now; they are replaced after 60 s",
            "58.25 dump 0-1",
            "60.25 replace 0-1: " + what + ", for 60 s",
        });
}

TEST_CASE("a rank that runs ahead is not the one that is waited for") {
  HangWorld world;
  world.put_all(3, 8, true);
  world.put(0, 11, true);  // a root need not wait
  world.put(2, 7, false);
  world.run(70s);
  CHECK(world.take_log().back().starts_with(
      "60.25 replace 2: rank 2 has not entered all_reduce #8, where rank 1 is waiting"));
}

TEST_CASE("nor is one of higher rank") {
  HangWorld world;
  world.put(0, 8, true);
  world.put(1, 7, false);
  world.put(2, 11, true);
  world.run(70s);
  CHECK(world.take_log().back().starts_with(
      "60.25 replace 1: rank 1 has not entered all_reduce #8, where rank 0 is waiting"));
}

TEST_CASE("who waits for a rank is known from the collectives that they are in") {
  HangJudge judge(HangConfig{});
  const auto at = [](int rank, std::uint64_t group, std::uint64_t seq, bool inside) {
    return ProgressSample{.rank = rank, .group = group, .seq = seq, .inside = inside};
  };
  const HangJudge::Samples samples = {at(0, 0, 7, true), at(1, 0, 6, false), at(2, 0, 7, true),
                                      at(3, 0, 6, true), at(3, 5, 2, true),  at(4, 0, 7, false)};
  judge.step(kStart, HangJudge::Event(samples));
  CHECK(judge.waiting_for(1) == RankSet{0, 2});
  CHECK(judge.waiting_for(0).empty());
  CHECK(judge.waiting_for(9).empty());
}

TEST_CASE("a wait begins when somebody waits") {
  HangWorld world;
  world.put(0, 5, false);
  world.put(1, 5, false);
  for (std::uint64_t seq = 1; seq < 5; ++seq) {  // rank 0 is busy with rank 2 meanwhile
    world.put(0, seq, false, 7);
    world.put(2, seq, false, 7);
    world.run(25s);
  }
  world.put(0, 6, true);
  check_quiet(world, 29s);
  world.run(2s);
  CHECK(world.take_log().size() == 1);
}

TEST_CASE("at the end of a chain of waiting ranks is the one that hangs, and only that") {
  HangWorld world;
  world.put(0, 6, true);
  world.put(1, 5, false);
  world.put(1, 3, true, 7);
  world.put(2, 2, false, 7);
  world.run(70s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 3);
  CHECK(log[2].starts_with("60.25 replace 2: rank 2 has not entered all_reduce #3 of group 7"));
}

TEST_CASE("a rank that hangs is named although one that waits for it is stopped") {
  HangWorld world(HangConfig{.hang_timeout = 60s, .stop_limit = Duration::max()});
  world.put(0, 6, true);
  world.put(1, 6, true);
  world.put(2, 5, false);
  world.set(1, ProcessState::stopped);
  world.run(70s);
  CHECK(world.take_log().back().starts_with("60.25 replace 2: "));
}

TEST_CASE("who is missing because it waits elsewhere is not at fault") {
  HangWorld world;
  world.put_all(3, 5, false);
  world.put(0, 6, true);
  world.put(1, 3, true, 7);
  world.put(2, 2, false, 7);
  world.run(70s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 6);  // rank 2 is missing in both groups; rank 1 is never named
  for (const auto& line : log) {
    if (line.find("dump") == std::string::npos)
      CHECK(line.find(" 2: rank 2 ") != std::string::npos);
  }
  CHECK(log.back().find("#3 of group 7, where rank 1 is waiting") != std::string::npos);
}

TEST_CASE("who waits for a rank that works in another group is left alone") {
  HangWorld world;
  world.put(0, 6, true);
  world.put(1, 5, false);
  world.put(1, 3, true, 7);
  world.put(2, 2, false, 7);
  for (int i = 0; i < 10; ++i) {
    check_quiet(world, 25s);
    world.put(2, 2, false, 7);  // it sends messages, say
  }
}

TEST_CASE("ranks that wait for each other in two groups, in a circle") {
  HangWorld world;
  world.put(0, 6, true);
  world.put(1, 5, false);
  world.put(1, 3, true, 7);
  world.put(0, 2, false, 7);
  world.run(70s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 3);
  CHECK(log[1] == "58.25 dump 0-1");
  CHECK(log[2] ==
        "60.25 replace 0-1: rank 0-1 wait for each other in collectives of different groups, one "
        "of them all_reduce #6: these must be called in the same order everywhere, for 60 s");
  for (const Hang& wait : world.judge.waits(world.now, 60s)) CHECK(wait.waiting == RankSet{0, 1});
}

TEST_CASE("no rank in any collective: only after the whole time, and the message says so") {
  HangWorld world;
  world.put_all(3, 100, false);
  check_quiet(world, 29s);
  world.run(40s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 3);
  CHECK(log[0] ==
        "30.25 warn 0: no rank has entered or left a collective, for 30 s now; they are replaced "
        "after 60 s");
  CHECK(log[2].starts_with("60.25 replace 0-2: no rank has entered or left a collective"));
}

TEST_CASE("one rank at work is enough where nobody waits") {
  HangWorld world;
  world.put_all(3, 100, false);
  for (int i = 0; i < 10; ++i) {
    check_quiet(world, 20s);
    world.put(1, 101 + static_cast<std::uint64_t>(i), false);
  }
}

TEST_CASE("before the first collective nothing is judged") {
  HangWorld world;
  world.put_all(3, 0, false);
  check_quiet(world, 3600s);
}

TEST_CASE("without a limit hangs are not looked for") {
  HangWorld world(HangConfig{});
  world.put(0, 1, true);
  world.put(1, 0, false);
  check_quiet(world, 3600s);
  CHECK_FALSE(world.judge.deadline());
}

TEST_CASE("without a limit a warning names the late rank, and nothing else happens") {
  HangWorld world(HangConfig{.warn_after = 60s});
  world.put_all(4, 16, false);
  for (const int rank : {0, 1, 2}) world.put(rank, 17, true);
  world.run(300s);
  CHECK(
      world.take_log() ==
      Log{"60.25 warn 3: rank 3 has not entered all_reduce #17, where rank 0-2 are waiting, for "
          "60 s now; 'dlaunchctl stacks 3' shows what goes on there, --hang-timeout would replace "
          "it"});
  CHECK_FALSE(world.judge.deadline());
  CHECK(world.judge.waits(world.now, 299s).size() == 1);
  CHECK(world.judge.waits(world.now, 301s).empty());
  world.put_all(4, 17, false);
  world.run(600s);  // nobody waits for anybody
  CHECK(world.take_log() == Log{"300.25 warn 3: rank 3 has not entered all_reduce #17, where rank "
                                "0-2 are waiting: this is over"});
  CHECK(world.judge.waits(world.now, 0s).empty());
}

TEST_CASE("a wait that ended well is no news until one takes twice as long") {
  HangWorld world(HangConfig{.warn_after = 60s});
  const auto wait = [&](std::uint64_t seq, Duration time) {
    for (const int rank : {0, 1, 2}) world.put(rank, seq, true);
    world.run(time);
    world.put_all(4, seq, false);
    world.run(1s);
    return world.take_log().size();
  };
  world.put_all(4, 16, false);
  CHECK(wait(17, 59s) == 0);
  CHECK(wait(18, 70s) == 2);
  CHECK(wait(19, 130s) == 0);
  CHECK(wait(20, 150s) == 2);
  world.feed(HangJudge::NewRound{});
  world.put_all(4, 0, false);
  CHECK(wait(1, 250s) == 0);
}

TEST_CASE("a long limit does not put off the warning") {
  HangWorld world(HangConfig{.hang_timeout = 600s, .warn_after = 60s});
  world.put_all(2, 16, false);
  world.put(0, 17, true);
  world.run(100s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 1);
  CHECK(log[0].starts_with("60.25 warn 1: "));
  CHECK(log[0].ends_with("it is replaced after 600 s"));
  world.put_all(2, 17, false);
  world.run(290s);
  CHECK(world.take_log().size() == 1);  // that it is over
  world.run(15s);
  CHECK(world.take_log().size() == 1);  // that all are idle: half of the limit
}

TEST_CASE("a rank that is not heard of stops the time: its host is for others to judge") {
  HangWorld world = one_missing();
  world.put(4, 16, false);
  world.run(20s);
  world.forget(4);
  check_quiet(world, 600s);
  world.feed(HangJudge::Gone{4});
  check_quiet(world, 29s);
  world.run(32s);
  CHECK(world.take_log().back().starts_with("680 replace 3: "));
}

TEST_CASE("after a jump of the clock the wait starts from zero") {
  HangWorld world = one_missing();
  world.run(25s);
  world.now += 3600s;
  check_quiet(world, 29s);
  world.run(2s);
  CHECK(world.take_log().size() == 1);
}

TEST_CASE("an age that jumps on its host alone proves nothing") {
  HangWorld world = one_missing();
  world.run(5s);
  world.age_error = 3600s;
  check_quiet(world, 24s);
}

TEST_CASE("who ended is not waited for, and what was said is void") {
  HangWorld world = one_missing();
  world.run(40s);
  CHECK(world.take_log().size() == 1);
  world.feed(HangJudge::Gone{3});
  world.forget(3);
  check_quiet(world, 29s);  // the others are in a collective that all have entered, and will hear
  world.run(2s);
  CHECK(world.take_log().size() == 1);
}

TEST_CASE("when the only waiting rank ends, no message says that the wait is over") {
  HangWorld world;
  world.put(0, 17, true);
  world.put(1, 16, false);
  world.run(40s);
  CHECK(world.take_log().size() == 1);
  world.feed(HangJudge::Gone{0});
  for (const auto& line : world.take_log()) CHECK_FALSE(line.ends_with("this is over"));
}

TEST_CASE("after a replacement there is no further message about the wait") {
  HangWorld world = one_missing();
  world.run(70s);
  CHECK(world.take_log().size() == 3);
  world.put_all(4, 17, false);
  check_quiet(world, 5s);
}

TEST_CASE("data that moved and stands again is warned of again") {
  HangWorld world;
  world.put_all(2, 1, true);
  world.run(40s);
  CHECK(world.take_log().size() == 1);
  world.put_all(2, 1, true);
  world.run(40s);
  CHECK(world.take_log().size() == 1);
}

TEST_CASE("a rank that is traced in the next round, too, gets another warning") {
  HangWorld world = one_missing();
  world.set(3, ProcessState::traced);
  world.run(5s);
  world.feed(HangJudge::NewRound{});
  world.run(5s);
  CHECK(world.take_log().size() == 2);
}

TEST_CASE("a new round begins with nothing") {
  HangWorld world = one_missing();
  world.run(50s);
  world.take_log();
  world.feed(HangJudge::NewRound{});
  CHECK_FALSE(world.judge.deadline());
  check_quiet(world, 29s);
}

TEST_CASE("whatever is sampled: nothing traced is replaced, and deadlines lie ahead") {
  int replaced = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto under = [&](unsigned n) { return static_cast<int>(random() % n); };
    HangJudge judge({.hang_timeout = 3s, .stop_limit = 2s});
    std::map<std::pair<int, std::uint64_t>, ProgressSample> samples;
    std::map<int, ProcessState> states;
    TimePoint now(1000s);
    for (int turn = 0; turn < 400; ++turn) {
      now += std::chrono::milliseconds(under(50) == 0 ? under(20'000) : 250);
      if (under(15) == 0) states[under(4)] = static_cast<ProcessState>(under(5));
      RankSet traced;
      for (auto& [key, sample] : samples) {
        if (under(20) == 0)
          sample.seq += static_cast<std::uint64_t>(sample.inside = !sample.inside);
        sample.state = states[key.first];
        if (sample.state == ProcessState::traced) traced.insert(key.first);
        sample.age = std::chrono::milliseconds(under(5000));
      }
      if (samples.size() < 8) {
        const std::pair key{under(4), static_cast<std::uint64_t>(under(2))};
        samples[key] = {.rank = key.first, .group = key.second};
      }
      HangJudge::Event event = HangJudge::Clock{};
      if (under(4) != 0) {
        HangJudge::Samples batch;
        for (const auto& [key, sample] : samples) batch.push_back(sample);
        event = batch;
      } else if (under(40) == 0) {
        event = HangJudge::NewRound{};
      } else if (under(40) == 0) {
        event = HangJudge::Gone{under(4)};
      }
      for (const auto& action : judge.step(now, event)) {
        const auto* replace = std::get_if<HangJudge::Replace>(&action);
        if (replace == nullptr) continue;
        ++replaced;
        CHECK_FALSE(replace->ranks.empty());
        if (std::holds_alternative<HangJudge::Samples>(event)) CHECK(traced.empty());
      }
      if (judge.deadline()) CHECK(*judge.deadline() > now);
    }
  }
  CHECK(replaced > 20);
}

TEST_CASE("a collective this version has no name for") {
  HangWorld world;
  world.feed(HangJudge::Samples{{.rank = 0, .seq = 4, .inside = true, .what = 200},
                                {.rank = 1, .seq = 3, .what = 200}});
  for (int i = 0; i < 70; ++i) {
    world.now += 500ms;
    world.feed(HangJudge::Samples{{.rank = 0, .seq = 4, .inside = true, .what = 200, .age = 1h},
                                  {.rank = 1, .seq = 3, .inside = false, .what = 200, .age = 1h}});
  }
  CHECK(world.take_log().back().find("not entered collective #4,") != std::string::npos);
}

TEST_CASE("the time that a rank stood still before its host reported it counts") {
  HangJudge judge({.hang_timeout = 60s, .stop_limit = 60s, .dump_time = 2s});
  TimePoint now(1000s);
  const auto sample = [](int rank, std::uint64_t seq, bool inside, Duration age) {
    return ProgressSample{
        .rank = rank, .group = 0, .seq = seq, .inside = inside, .what = 0, .age = age, .seen = age};
  };
  std::vector<Duration> warned, replaced;
  // Rank 1 is of another host, which says after 20 s that it stands, and only that it moves before.
  for (const TimePoint began = now; now < began + 70s; now += 200ms) {
    const Duration at = now - began;
    const bool told = at >= 20s;
    HangJudge::Samples samples = {sample(0, 9, true, at),
                                  sample(1, told ? 8 : 0, false, told ? at : 0s)};
    for (const auto& action : judge.step(now, HangJudge::Event(samples))) {
      if (std::holds_alternative<HangJudge::Warn>(action)) warned.push_back(at);
      if (std::holds_alternative<HangJudge::Replace>(action)) replaced.push_back(at);
    }
  }
  REQUIRE(warned.size() == 1);
  CHECK(warned[0] == 30s);
  REQUIRE(replaced.size() == 1);
  CHECK(replaced[0] == 60s);
}
