#include "cli/config_file.h"

#include <random>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

using Values = std::vector<std::string>;

std::vector<ConfigEntry> parsed(std::string_view text) {
  auto entries = parse_config(text, "job.toml");
  REQUIRE_MESSAGE(entries, (entries ? "" : entries.error().what));
  return *entries;
}

std::string file_error(std::string_view text) {
  auto entries = parse_config(text, "job.toml");
  REQUIRE_FALSE(entries);
  CHECK(entries.error().code == Errc::protocol);
  return entries.error().what;
}

}  // namespace

TEST_CASE("strings, numbers, booleans, arrays and comments") {
  const auto entries = parsed(
      "# a job\n"
      "nproc = 4   # workers\n"
      "\n"
      "log-dir=\"logs/#1 \\\"x\\\"\"\r\n"
      "grace = '1.5s'\n"
      "timestamps = true\n"
      "env = [\n"
      "  \"A=1,2\",  # first\n"
      "  'B=[x]',\n"
      "]\n"
      "max-restarts = 3");
  REQUIRE(entries.size() == 6);
  CHECK(entries[0].key == "nproc");
  CHECK(entries[0].values == Values{"4"});
  CHECK(entries[0].line == 2);
  CHECK(entries[1].values == Values{"logs/#1 \"x\""});
  CHECK(entries[2].values == Values{"1.5s"});
  CHECK(entries[3].values == Values{"true"});
  CHECK(entries[4].values == Values{"A=1,2", "B=[x]"});
  CHECK(entries[5].line == 11);
}

TEST_CASE("an empty file sets nothing") {
  CHECK(parsed("").empty());
  CHECK(parsed("\n # x\n").empty());
}

TEST_CASE("an error in a config file names the line") {
  CHECK(file_error("nproc 4\n") == "job.toml:1: expected '=' after 'nproc'");
  CHECK(file_error("\n= 4\n") == "job.toml:2: expected: option = value");
  CHECK(file_error("bind = core\n") ==
        "job.toml:1: expected a number, true, false or a string in quotes, not core");
  CHECK(file_error("a = \n") == "job.toml:1: expected a number, true, false or a string in quotes");
  CHECK(file_error("[worker]\na = 1\n") ==
        "job.toml:1: sections are not used: put the options at the top");
  CHECK(file_error("a = \"x\n") == "job.toml:1: a string without its closing \"");
  CHECK(file_error("a = 'x") == "job.toml:1: a string without its closing '");
  CHECK(file_error("a = \"\\q\"") ==
        "job.toml:1: unknown escape in a string: use \\\\, \\\", \\n or \\t");
  CHECK(file_error("a = 1 2\n") == "job.toml:1: unexpected text after the value");
  CHECK(file_error("a = [1\n2]\n") == "job.toml:2: expected ',' or ']' in an array");
  CHECK(file_error("a = []\n") == "job.toml:1: an empty array sets nothing");
  CHECK(file_error("a = ''\n") == "job.toml:1: an empty string sets nothing");
  CHECK(file_error("a = 1\nb = 2\na = 3\n") == "job.toml:3: 'a' was set in line 1 already");
  CHECK(file_error("a = 1.2.3\n") ==
        "job.toml:1: expected a number, true, false or a string in quotes, not 1.2.3");
}

TEST_CASE("no bytes break the config parser") {
  std::mt19937 random(11);
  const std::string_view pieces[] = {"a",  "=", "\"",   "'", "[", "]", ",",  "\n",   "#",
                                     "\\", "1", "true", " ", ".", "-", "\0", "\xff", "key"};
  std::size_t good = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto left = random() % 14; left > 0; --left) text += pieces[random() % std::size(pieces)];
    auto entries = parse_config(text, "f");
    if (entries) {
      ++good;
      for (const auto& entry : *entries) {
        REQUIRE_FALSE(entry.key.empty());
        REQUIRE_FALSE(entry.values.empty());
      }
    } else {
      REQUIRE(entries.error().code == Errc::protocol);
    }
  }
  CHECK(good > 200);
}
