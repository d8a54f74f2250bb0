// The last lines of ranks, for programs that ask again and again.
#include "launcher/lead/monitor/rank_tails.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

struct RankTailsWorld {
  void ask(int rank, std::optional<std::uint64_t> after) {
    tails.ask(now, rank, after, [this](const RankTails::Answer& answer) {
      std::string words;
      for (const auto& line : answer.lines) {
        const auto json = nlohmann::json::parse(line);
        words += json.contains("text") ? json["text"].get<std::string>() : json.begin().key();
        words += "|";
      }
      answers.push_back(words);
      next = answer.next;
    });
  }
  void says(Slot slot, const std::string& text) {
    tails.take(now, slot, "h/0", {.slot = slot, .lost = 0, .lines = {{false, ++end, text}}});
  }
  std::vector<std::string> take_asked() { return std::exchange(asked, {}); }
  std::vector<std::string> take() { return std::exchange(answers, {}); }

  TimePoint now = kStart;
  std::map<int, Slot> slots = {{0, 5}, {1, 6}};
  std::vector<std::string> asked, answers;
  std::uint64_t next = 0, end = 0;
  RankTails tails{[this](Slot slot, Duration, bool again) {
                    asked.push_back(std::to_string(slot) + (again ? " again" : ""));
                  },
                  [this](int rank) { return slots.contains(rank) ? slots[rank] : -1; }};
};

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("rank tails: the first answer comes with the host's, the others with the next lines") {
  RankTailsWorld world;
  world.ask(1, {});
  CHECK(world.take_asked() == Words{"6"});
  CHECK(world.take().empty());
  world.says(5, "another rank");
  CHECK(world.take().empty());
  world.says(6, "a");
  CHECK(world.take() == Words{"a|"});
  world.ask(1, world.next);
  CHECK(world.take().empty());
  world.says(6, "b");
  CHECK(world.take() == Words{"b|"});
  CHECK(world.take_asked().empty());
  // The host goes on only if somebody asks.
  world.now += 15s;
  world.ask(1, world.next);
  CHECK(world.take_asked() == Words{"6 again"});
  world.tails.take(world.now, 6, "h/0", {.slot = 6, .lost = 7, .lines = {}});
  CHECK(world.take() == Words{"lost_bytes|"});
  world.now += 50s;
  world.ask(0, {});
  CHECK(world.take_asked() == Words{"5"});
  world.says(6, "nobody asks for it");
  world.ask(1, 0);
  CHECK(world.take_asked() == Words{"6"});
  CHECK(world.take().empty());
}

TEST_CASE("rank tails: a rank that moves, one whose host is lost, and one without a process") {
  RankTailsWorld world;
  world.ask(1, 0);
  CHECK(world.take_asked() == Words{"6"});
  world.slots[1] = 9;
  world.tails.look(world.now);
  CHECK(world.take_asked() == Words{"9"});
  world.says(6, "of the slot before");
  CHECK(world.take().empty());
  world.says(9, "c");
  CHECK(world.take() == Words{"c|"});
  world.tails.lost(9);
  world.tails.look(world.now);
  CHECK(world.take_asked() == Words{"9"});
  world.ask(2, {});
  CHECK(world.take() == Words{""});
}

TEST_CASE("rank tails: lines of a rank's next process are not lost if its round begins later") {
  RankTailsWorld world;
  world.ask(1, {});
  world.says(6, "a");
  world.slots.erase(1);
  world.tails.look(world.now);
  world.slots[1] = 6;
  world.take_asked();
  world.take();
  world.ask(1, world.next);
  world.slots.erase(1);
  world.tails.look(world.now);
  world.take_asked();
  world.slots[1] = 6;
  world.says(6, "the next process");
  CHECK(world.take_asked() == Words{"6"});
  CHECK(world.take() == Words{"the next process|"});
}

TEST_CASE("rank tails: the job's end is the last line, for which the leader waits a moment") {
  RankTailsWorld world;
  world.ask(1, 0);
  world.says(6, "a");
  CHECK(world.take() == Words{"a|"});
  CHECK(world.tails.owes_last(world.now));
  world.tails.end(world.now);
  world.ask(1, world.next);
  CHECK(world.take() == Words{"ended|"});
  CHECK_FALSE(world.tails.owes_last(world.now));
  world.ask(0, 0);
  CHECK(world.take() == Words{"ended|"});
  world.ask(0, {});
  CHECK(world.take() == Words{"ended|"});
}
