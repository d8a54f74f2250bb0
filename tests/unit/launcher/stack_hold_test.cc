// What comes first when a worker may only have given up waiting.
#include "launcher/lead/monitor/stack_hold.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

StackHold::Ended failed(Slot slot, bool may_follow, std::vector<Slot> others = {1, 2}) {
  WorkerEnd end;
  end.rank = slot;
  end.exit_code = 1;
  return {slot, end, may_follow, std::move(others)};
}
StackHold::Ended went_well(Slot slot) {
  WorkerEnd end;
  end.rank = slot;
  return {slot, end, false, {1}};
}

// "take 1 2", "pass 0"
std::string in_words(const std::vector<StackHold::Action>& actions) {
  std::string text;
  for (const auto& action : actions) {
    if (!text.empty()) text += ", ";
    if (const auto* take = std::get_if<StackHold::TakeStacks>(&action)) {
      text += "take";
      for (const Slot slot : take->slots) text += " " + std::to_string(slot);
    } else {
      text += "pass " + std::to_string(std::get<StackHold::PassOn>(action).slot);
    }
  }
  return text;
}

}  // namespace

TEST_CASE("stack hold: an end that shows its cause passes at once") {
  StackHold hold;
  CHECK(in_words(hold.step(kStart, failed(0, false))) == "pass 0");
  CHECK(in_words(hold.step(kStart, went_well(1))) == "pass 1");
  CHECK(in_words(hold.step(kStart, failed(2, true, {}))) == "pass 2");  // nobody is left
  CHECK_FALSE(hold.deadline());
}

TEST_CASE("stack hold: an end that may follow from a wait passes once all stacks are there") {
  StackHold hold;
  CHECK(in_words(hold.step(kStart, failed(0, true))) == "take 1 2");
  CHECK(hold.deadline() == kStart + kStackHold);
  CHECK(in_words(hold.step(kStart, StackHold::Answered{2})).empty());
  CHECK(in_words(hold.step(kStart, StackHold::Answered{7})).empty());
  CHECK(in_words(hold.step(kStart, failed(2, true))).empty());  // it gave up, too
  CHECK(in_words(hold.step(kStart, StackHold::Answered{1})) == "pass 0, pass 2");
  CHECK_FALSE(hold.deadline());
  CHECK(in_words(hold.step(kStart, failed(1, false))) == "pass 1");
}

TEST_CASE("stack hold: stacks that were taken when a worker said it gave up are not taken again") {
  StackHold hold;
  CHECK(in_words(hold.step(kStart, StackHold::GaveUp{0, {1, 2}})) == "take 1 2");
  CHECK_FALSE(hold.deadline());
  CHECK(in_words(hold.step(kStart, StackHold::GaveUp{1, {0, 2}})).empty());
  SUBCASE("an end waits for those that are not there yet") {
    CHECK(in_words(hold.step(kStart + 10ms, StackHold::Answered{1})).empty());
    CHECK(in_words(hold.step(kStart + 20ms, failed(0, true))).empty());
    CHECK(hold.deadline() == kStart + 20ms + kStackHold);
    CHECK(in_words(hold.step(kStart + 30ms, StackHold::Answered{2})) == "pass 0");
  }
  SUBCASE("and for none if all are there") {
    (void)hold.step(kStart + 10ms, StackHold::Answered{1});
    CHECK(in_words(hold.step(kStart + 20ms, StackHold::Answered{2})).empty());
    CHECK(in_words(hold.step(kStart + 3s, failed(0, true))) == "pass 0");
  }
  SUBCASE("old ones are taken again") {
    CHECK(in_words(hold.step(kStart + 60s, failed(0, true))) == "take 1 2");
  }
}

TEST_CASE("stack hold: it ends at the deadline, and not before") {
  StackHold hold;
  (void)hold.step(kStart, failed(0, true));
  CHECK(in_words(hold.step(kStart + kStackHold - 1ms, StackHold::Clock{})).empty());
  CHECK(in_words(hold.step(kStart + kStackHold, StackHold::Clock{})) == "pass 0");
  CHECK(in_words(hold.step(kStart + kStackHold, StackHold::Answered{1})).empty());
}

TEST_CASE("stack hold: another event, or a failure that shows its cause, ends it") {
  StackHold hold;
  (void)hold.step(kStart, failed(0, true));
  CHECK(in_words(hold.step(kStart, went_well(3))).empty());
  CHECK(in_words(hold.step(kStart, failed(1, false))) == "pass 0, pass 3, pass 1");
  hold = {};
  (void)hold.step(kStart, failed(0, true));
  CHECK(in_words(hold.step(kStart, StackHold::Hurry{})) == "pass 0");
  CHECK(in_words(hold.step(kStart, StackHold::Hurry{})).empty());
}
