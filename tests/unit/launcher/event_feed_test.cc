// The newest events, for programs that ask for them.
#include "launcher/lead/events/event_feed.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Lines = std::vector<std::string>;

struct FeedWorld {
  void ask(std::optional<std::uint64_t> after) {
    feed.ask(now, after, [this](const EventFeed::Answer& answer) { answers.push_back(answer); });
  }
  void add(const std::string& line, bool last = false) {
    feed.add(line, last);
    feed.on_clock(now);
  }
  void pass(Duration time) {
    now += time;
    if (feed.deadline() && *feed.deadline() <= now) feed.on_clock(now);
  }
  TimePoint now = kStart;
  EventFeed feed;
  std::vector<EventFeed::Answer> answers;
};

}  // namespace

TEST_CASE("event feed: what is there comes at once, the rest with the next event") {
  FeedWorld world;
  world.ask({});
  REQUIRE(world.answers.size() == 1);
  CHECK((world.answers[0].lines.empty() && world.answers[0].next == 0));
  world.add("a");
  world.add("b");
  world.ask(0);
  CHECK(world.answers.back().lines == Lines{"a", "b"});
  CHECK(world.answers.back().next == 2);
  world.ask(1);
  CHECK(world.answers.back().lines == Lines{"b"});
  world.ask(2);
  world.ask(2);
  CHECK(world.answers.size() == 3);
  CHECK(world.feed.deadline() == world.now + EventFeed::kPatience);
  world.add("c");
  REQUIRE(world.answers.size() == 5);
  CHECK((world.answers[3].lines == Lines{"c"} && world.answers[4].lines == Lines{"c"}));
  CHECK_FALSE(world.feed.deadline());
}

TEST_CASE("event feed: what is no longer kept since the last answer is counted") {
  FeedWorld world;
  world.add("a");
  world.ask(0);
  CHECK(world.answers.back().missing == 0);
  for (std::size_t i = 0; i < EventFeed::kKept + 7; ++i) world.feed.add("b", false);
  world.ask(1);
  CHECK(world.answers.back().missing == 7);
  world.ask({});
  CHECK(world.answers.back().missing == 0);
}

TEST_CASE("event feed: an answer of an earlier leader is no reason to leave events out") {
  EventFeed feed(1000);
  std::vector<EventFeed::Answer> answers;
  const auto ask = [&](std::uint64_t after) {
    feed.ask(kStart, after, [&](const EventFeed::Answer& answer) { answers.push_back(answer); });
  };
  ask(0);
  CHECK(answers.empty());  // there are no events yet
  feed.add("a", false);
  feed.on_clock(kStart);
  REQUIRE(answers.size() == 1);
  CHECK((answers[0].lines == Lines{"a"} && answers[0].next == 1001));
  feed.add("b", false);
  ask(1001);
  CHECK(answers.back().lines == Lines{"b"});
  for (const std::uint64_t foreign : {5, 999, 1003, 2000}) {
    ask(foreign);
    CHECK(answers.back().lines == Lines{"a", "b"});
  }
}

TEST_CASE("event feed: a program that waits for long is asked to ask again") {
  FeedWorld world;
  world.add("a");
  world.ask(1);
  world.pass(EventFeed::kPatience - 1ms);
  CHECK(world.answers.empty());
  world.pass(1ms);
  REQUIRE(world.answers.size() == 1);
  CHECK((world.answers[0].lines.empty() && world.answers[0].next == 1));
}

TEST_CASE("event feed: only the newest are kept, and other counts begin from the start") {
  FeedWorld world;
  for (std::size_t i = 0; i < EventFeed::kKept + 10; ++i) world.add(std::to_string(i));
  world.ask(3);
  CHECK(world.answers.back().lines.size() == EventFeed::kKept);
  CHECK(world.answers.back().lines.front() == "10");
  world.ask(1'000'000);  // of another leader
  CHECK(world.answers.back().lines.size() == EventFeed::kKept);
}

TEST_CASE("event feed: who follows gets the last event, if it asks within a moment") {
  FeedWorld world;
  world.add("a");
  CHECK_FALSE(world.feed.owes_last(world.now));
  world.ask(0);
  world.add("end", true);  // between two questions
  CHECK(world.feed.owes_last(world.now));
  world.ask(1);
  CHECK(world.answers.back().lines == Lines{"end"});
  CHECK_FALSE(world.feed.owes_last(world.now));
  // One that never comes again holds up the end for a moment only.
  FeedWorld gone;
  gone.add("a");
  gone.ask(0);
  gone.add("end", true);
  gone.pass(1s);
  CHECK(gone.feed.owes_last(gone.now));
  gone.pass(1s);
  CHECK_FALSE(gone.feed.owes_last(gone.now));
  // One that asked once for what is there does not come again.
  FeedWorld once;
  once.add("a");
  once.ask({});
  once.add("end", true);
  CHECK_FALSE(once.feed.owes_last(once.now));
}
