// JobDriver: what waits for the journal, and what the journal has.
#include "elastic/job_driver.h"

#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/elastic/job_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// What a JobDriver does; the journal is written when the test says so.
struct Hands : JobDriver::Effects {
  TimePoint now() override { return clock; }
  bool writes_down() const override { return true; }
  void write_down(const JobRecord& record, std::function<void()> then) override {
    records.push_back(record);
    written.push_back(std::move(then));
  }
  void perform(const JobCore::StartWorkers& start) override {
    for (const auto& place : start.places) started.push_back(place.slot);
  }
  void perform(const JobCore::StopWorkers&) override {}
  void perform(const JobCore::HandOn&) override {}
  void perform(const JobCore::Fence& fence) override { fences.push_back(fence.round); }
  void perform(const JobCore::Announce&) override {}
  void perform(const JobCore::AwaitEnd&) override {}
  void perform(const JobCore::Finish&) override { ++finished; }
  TimePoint clock = kStart;
  std::vector<JobRecord> records;
  std::vector<std::function<void()>> written;
  std::vector<Slot> started;
  std::vector<int> fences;
  int finished = 0;
};

}  // namespace

TEST_CASE("an action waits for the journal, and an outdated one is dropped") {
  Hands hands;
  Pump pump;
  JobDriver driver(one_on_each_of(3, 2, 2), pump, hands);
  driver.feed(JobCore::Start{});
  REQUIRE(hands.records.size() == 1);
  CHECK(hands.records[0].round == 1);
  CHECK(hands.started.empty());
  driver.feed(JobCore::NodeLost{2});
  CHECK(hands.fences.empty());
  REQUIRE(hands.records.size() == 2);
  CHECK(hands.records[1].round == 2);
  hands.written[0]();
  CHECK(hands.started == std::vector<Slot>{0, 1});
  CHECK(hands.fences.empty());
  hands.written[1]();
  CHECK(hands.fences == std::vector<int>{2});
}

TEST_CASE("a start that waits for the journal is dropped if its host was lost and is back") {
  Hands hands;
  Pump pump;
  JobConfig config = of(1, 5, 1);
  config.nodes = {0, 1};
  JobDriver driver(config, pump, hands);
  driver.feed(JobCore::Start{});
  REQUIRE(hands.written.size() == 1);
  hands.written[0]();
  for (const Slot slot : {0, 1}) {
    driver.feed(JobCore::Spawned{slot});
    driver.feed(JobCore::Ready{slot, 0});
  }
  REQUIRE(hands.started == Slots{0, 1});
  driver.feed(JobCore::Ended{.slot = 0, .well = false});  // the spare takes its place
  REQUIRE(hands.written.size() == 2);
  hands.clock += 2s;
  driver.feed(JobCore::Clock{});  // and it is started as a spare
  REQUIRE(driver.core().life_of(0) == "starting");
  driver.feed(JobCore::NodeLost{0});
  driver.feed(JobCore::NodeBack{0});
  REQUIRE(driver.core().life_of(0) == "starting");
  REQUIRE(hands.written.size() == 2);
  CHECK(hands.started == Slots{0, 1});
  hands.written[1]();
  CHECK(hands.started == Slots{0, 1, 0});
}

TEST_CASE("an accusation of corrupt data is written down, though nothing else is new") {
  Hands hands;
  Pump pump;
  JobDriver driver(one_on_each_of(3, 2, 2), pump, hands);
  driver.feed(JobCore::Start{});
  for (const Slot slot : {0, 1, 2}) {
    driver.feed(JobCore::Spawned{slot});
    driver.feed(JobCore::Ready{slot, 0});
  }
  driver.feed(JobCore::Ready{0, 1, 0, "", true, 2});
  const int round = hands.records.back().round;
  driver.feed(JobCore::Ready{1, 1, 0, "", true, 2});
  CHECK(hands.records.back().round == round);
  CHECK(hands.records.back().accused.at(2) == std::vector<Slot>{0, 1});
}

TEST_CASE("the time left of --timeout is written down each minute") {
  Hands hands;
  Pump pump;
  JobConfig config = one_on_each_of(2, 2, 2);
  config.timeout = 1h;
  JobDriver driver(config, pump, hands);
  driver.feed(JobCore::Start{});
  for (const Slot slot : {0, 1}) {
    driver.feed(JobCore::Spawned{slot});
    driver.feed(JobCore::Ready{slot, 0});
  }
  CHECK(hands.records.back().time_left == 1h);
  hands.clock += 30min;
  driver.feed(JobCore::Clock{});
  CHECK(hands.records.back().time_left == 30min);
  const auto records = hands.records.size();
  hands.clock += 1s;
  driver.feed(JobCore::Clock{});
  hands.clock += 1s;
  driver.feed(JobCore::Clock{});
  CHECK(hands.records.size() == records + 1);
}
