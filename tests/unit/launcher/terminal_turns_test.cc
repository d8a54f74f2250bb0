#include "launcher/node/workers/terminal_turns.h"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("workers have the terminal one at a time, in the order in which they ask") {
  TerminalTurns turns;
  CHECK_FALSE(turns.holder());
  CHECK(turns.asks(3));
  CHECK_FALSE(turns.asks(1));
  CHECK_FALSE(turns.asks(2));
  CHECK_FALSE(turns.asks(1));  // a second time
  CHECK(turns.asks(3));        // it lost the terminal while it was stopped
  CHECK_FALSE(turns.ended(1));
  CHECK(turns.ended(3));
  CHECK(turns.holder() == 2);
  CHECK(turns.ended(2));
  CHECK_FALSE(turns.holder());
  CHECK_FALSE(turns.ended(0));
}

TEST_CASE("a worker that starts with the terminal keeps it from those that ask") {
  TerminalTurns turns;
  turns.has(1);
  CHECK_FALSE(turns.asks(0));
  CHECK(turns.holder() == 1);
  CHECK(turns.ended(1));
  CHECK(turns.holder() == 0);
}
