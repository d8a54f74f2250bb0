// Joining equal lines of several ranks.
#include "launcher/output/line_merger.h"

#include <random>

#include <doctest/doctest.h>

#include "tests/unit/sanitized.h"
#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {
using Lines = std::vector<std::string>;

struct Merger {
  explicit Merger(int ranks) {
    for (int r = 0; r < ranks; ++r) core.join(r);
  }
  void say(int rank, const Lines& lines, TimePoint now = kStart) {
    for (const auto& line : lines) core.add(now, rank, line);
  }
  static Lines written(const std::vector<LineMerger::Merged>& lines) {
    Lines out;
    for (const auto& line : lines)
      out.push_back("[" + format_rank_set(line.ranks) + "] " + line.text);
    return out;
  }
  Lines take(TimePoint now = kStart) { return written(core.take(now)); }
  LineMerger core;
};

}  // namespace

TEST_CASE("a line that all ranks have said is shown at once, and as one") {
  Merger m(4);
  for (int r = 0; r < 3; ++r) m.say(r, {"loading"});
  CHECK(m.take().empty());
  CHECK(m.core.deadline() == kStart + LineMerger::kWindow);
  m.say(3, {"loading"});
  CHECK(m.take() == Lines{"[0-3] loading"});
  CHECK_FALSE(m.core.deadline());
}

TEST_CASE("equal lines merge between different lines, and no line waits in vain") {
  Merger m(3);
  for (int r = 0; r < 3; ++r) m.say(r, {"loading", "rank " + std::to_string(r), "ready"});
  CHECK(m.take() ==
        Lines{"[0-2] loading", "[0] rank 0", "[1] rank 1", "[2] rank 2", "[0-2] ready"});
}

TEST_CASE("lines merge again after ranks that print more or fewer lines") {
  Merger m(3);
  m.say(0, {"a", "zero", "zero again", "b", "c"});
  m.say(1, {"a", "one", "one again", "one once more", "b", "c"});
  m.say(2, {"b", "c"});
  CHECK(m.take() == Lines{"[0-1] a", "[0] zero", "[0] zero again", "[1] one", "[1] one again",
                          "[1] one once more", "[0-2] b", "[0-2] c"});
  // Rank 0 alone speaks for long; when all say the same, it is one line though rank 0 is last.
  for (int i = 0; i < 100; ++i) m.say(0, {"step " + std::to_string(i)});
  CHECK(m.take(kStart + 200ms).size() == 100);
  for (const int r : {1, 2, 0}) m.say(r, {"end"}, kStart + 300ms);
  CHECK(m.take(kStart + 300ms) == Lines{"[0-2] end"});
}

TEST_CASE("a line waits for at most the window, also behind lines of a slow rank") {
  Merger m(3);
  m.say(0, {"x", "y"});
  m.say(1, {"u"}, kStart + 60ms);
  CHECK(m.take(kStart + 99ms).empty());
  // Rank 1's line stands in front and goes with them, a little early.
  CHECK(m.take(kStart + LineMerger::kWindow) == Lines{"[0] x", "[0] y", "[1] u"});
  CHECK_FALSE(m.core.deadline());
}

TEST_CASE("no line waits for a rank that has left, and its later lines are shown") {
  Merger m(2);
  m.say(0, {"x"});
  CHECK(m.take().empty());
  m.core.leave(1);
  CHECK(m.take() == Lines{"[0] x"});
  m.say(1, {"late"});
  m.say(0, {"y"});
  CHECK(m.take() == Lines{"[0] y"});
  m.core.leave(0);
  CHECK(m.take() == Lines{"[1] late"});
}

TEST_CASE("repeated lines are repeated") {
  Merger m(2);
  m.say(0, {"-", "-", "-"});
  m.say(1, {"-", "-"});
  CHECK(m.take() == Lines{"[0-1] -", "[0-1] -"});
  CHECK(Merger::written(m.core.take_all()) == Lines{"[0] -"});
}

TEST_CASE("the held lines are bounded") {
  Merger m(2);
  std::size_t held = 0, most = 0;
  for (int i = 0; i < 60000; ++i) {
    m.say(0, {"line " + std::to_string(i)});
    held += 1 - m.take().size();
    most = std::max(most, held);
  }
  CHECK(most < LineMerger::kMaxHeldBytes / 300);
  CHECK(most > 1000);
}

TEST_CASE(
    "merging keeps each rank's order, loses and invents nothing, and holds nothing too long") {
  for (unsigned seed = 0; seed < (kSanitized ? 800 : 4000); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const unsigned ranks = 1 + random() % 5, words = 1 + random() % 6;
    Merger m(static_cast<int>(ranks));
    std::vector<Lines> said(ranks), shown(ranks);
    auto now = kStart;
    bool late = false;
    auto keep = [&](const std::vector<LineMerger::Merged>& lines) {
      for (const auto& line : lines) {
        for (const int r : line.ranks) shown[static_cast<std::size_t>(r)].push_back(line.text);
        late = late || now > line.said + LineMerger::kWindow + 80ms;
      }
    };
    for (int i = 0; i < 80; ++i) {
      const auto rank = random() % ranks;
      const std::string line(1, static_cast<char>('a' + random() % words));
      said[rank].push_back(line);
      m.say(static_cast<int>(rank), {line}, now);
      if (random() % 50 == 0) m.core.leave(static_cast<int>(rank));
      if (random() % 4 == 0) {
        now += std::chrono::milliseconds(random() % 80);
        keep(m.core.take(now));
        late = late || (m.core.deadline() && *m.core.deadline() <= now);
      }
    }
    keep(m.core.take_all());
    CHECK(shown == said);
    CHECK_FALSE(late);
    CHECK_FALSE(m.core.deadline());
  }
}

TEST_CASE("equal output of all ranks merges completely, in any interleaving") {
  for (unsigned seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const unsigned ranks = 2 + random() % 6;
    Merger m(static_cast<int>(ranks));
    std::vector<int> next(ranks);
    std::size_t shown = 0;
    for (unsigned left = ranks * 50; left > 0;) {
      const auto r = random() % ranks;
      if (next[r] == 50) continue;
      m.say(static_cast<int>(r), {"line " + std::to_string(next[r]++ % 7)});
      --left;
      for (const auto& line : m.core.take(kStart)) {
        CHECK(line.ranks.size() == ranks);
        ++shown;
      }
    }
    CHECK(shown == 50);
  }
}
