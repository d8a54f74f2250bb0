// The visible part of a text on a terminal, and its number of columns.
#include "launcher/output/terminal_text.h"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("text is cut to columns, not to bytes, and no character is cut in two") {
  struct Case {
    const char* text;
    int columns;
    const char* line;
  };
  const Case cases[] = {
      {"plain", 5, "plain"},
      {"plain", 4, "plai"},
      {"plain", 0, ""},
      {"|██▌  |", 4, "|██▌"},
      {"日本語", 5, "日本"},  // each takes two
      {"日本語", 4, "日本"},
      {"日本語", 1, ""},
      {"e\u0301a", 1, "e\u0301"},  // a combining accent stays with its letter
      {"a\tb", 3, "a b"},
      {"a\b\a\rb", 9, "ab"},
      {"\x1b[2K\x1b[1Aup", 9, "up"},
      {"\x1b[31mred\x1b[0m end", 3, "\x1b[31mred\x1b[0m\x1b[0m"},
      {"\x1b[31mred", 2, "\x1b[31mre\x1b[0m"},
      {"\x1b]0;title\a.", 9, "."},
      {"\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", 9, "link"},
      {"cut \x1b[3", 9, "cut "},
      {"\xe2\x96", 9, "??"},  // a character that has not come to its end
      {"\xff", 9, "?"},
      {"\u0085x", 9, "x"},  // moves to the next line on some terminals
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    CAPTURE(c.columns);
    CHECK(fit_columns(c.text, c.columns) == c.line);
    CHECK(columns_of(fit_columns(c.text, c.columns)) <= c.columns);
  }
  CHECK(columns_of("日本\x1b[31me\u0301\x1b[0m") == 5);
}

TEST_CASE("control sequences are known to their end") {
  CHECK(control_sequence("\x1b[1Arest") == 4);
  CHECK(control_sequence("\x1b[31;1mx") == 7);
  CHECK(control_sequence("\x1b[3") == std::nullopt);
  CHECK(control_sequence("\x1b") == std::nullopt);
  CHECK(control_sequence("\x1bM") == 1);
  CHECK(control_sequence("\x1b[\n") == 1);
}

TEST_CASE("text that shows nothing is blank") {
  for (const char* text : {"", "   ", "\x1b[2K", " \x1b[K  "}) CHECK(shows_nothing(text));
  for (const char* text : {"x", "  .", "\x1b[31mx", "\x1b"}) CHECK_FALSE(shows_nothing(text));
}
