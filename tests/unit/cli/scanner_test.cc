#include "cli/scanner.h"

#include <algorithm>
#include <random>
#include <regex>

#include <doctest/doctest.h>

#include "base/nearest.h"
#include "cli/help.h"
#include "cli/help_topics.h"
#include "cli/suggest.h"

using namespace dlaunch;

namespace {

using Words = std::vector<std::string>;

ScannedLine scanned(const Words& words) {
  auto line = scan_line(words);
  REQUIRE_MESSAGE(line, (line ? "" : line.error().what));
  return *line;
}

// "nproc=4 env=A=1 | prog args"
std::string shown(const Words& words) {
  const auto line = scanned(words);
  std::string text;
  for (const auto& option : line.options) {
    text += std::string(option.row->name) + (option.value.empty() ? "" : "=" + option.value) + " ";
  }
  text += "|";
  for (const auto& word : line.program) text += " " + word;
  return text;
}

std::string scan_error(const Words& words) {
  auto line = scan_line(words);
  REQUIRE_FALSE(line);
  CHECK(line.error().code == Errc::usage);
  return line.error().what;
}

}  // namespace

TEST_CASE("an unknown name gets the nearest one that is taken") {
  CHECK(advice_for("nprocs") == "; did you mean '--nproc'?");
  CHECK(advice_for("rdzv_cnf") == "; did you mean '--rdzv-conf'?");
  CHECK(advice_for("fusion-treshold-mb") == "; did you mean '--fusion-threshold-mb'?");
}

TEST_CASE("one run reports all wrong options, each with its advice") {
  CHECK(scan_error({"--nprok", "2", "--bnid", "core", "--xterm", "0", "touch", "--bnid"}) ==
        "unknown option '--nprok'; did you mean '--nproc'?\n"
        "unknown option '--bnid'; did you mean '--bind'?\n"
        "'--xterm' of mpirun: dlaunch opens no windows; --only-rank shows one rank's output");
  // What may be the program's arguments is not judged.
  CHECK(scan_error({"--zzz", "prog", "--also-not-ours"}) == "unknown option '--zzz'");
  CHECK(scan_error({"--zzz", "--zzz", "--nprok=3", "prog"}) ==
        "unknown option '--zzz'\nunknown option '--nprok'; did you mean '--nproc'?");
}

TEST_CASE("long names: with '=', with a word, '-' and '_' alike") {
  CHECK(shown({"--nproc=4", "a"}) == "nproc=4 | a");
  CHECK(shown({"--nproc", "4", "a"}) == "nproc=4 | a");
  CHECK(shown({"--nproc_per_node=4", "a"}) == "nproc=4 | a");
  CHECK(shown({"--nproc-per_node", "4", "a"}) == "nproc=4 | a");
  CHECK(shown({"--log_dir", "d", "a"}) == "log-dir=d | a");
  CHECK(shown({"--timestamps", "--quiet=false", "a"}) == "timestamps quiet=false | a");
}

TEST_CASE("mpirun's words with one dash") {
  CHECK(shown({"-np", "4", "-hostfile", "h", "-wdir", "/tmp", "-x", "A=1", "-ppn", "2", "a"}) ==
        "np=4 hostfile=h chdir=/tmp env=A=1 nproc=2 | a");
  CHECK(shown({"-bind-to", "none", "-tag-output", "a"}) == "bind=none label | a");
  CHECK(shown({"-machinefile", "h", "-f", "g", "-D", "d", "a"}) ==
        "hostfile=h hostfile=g chdir=d | a");
  CHECK(shown({"-genv", "A", "1", "-env", "B", "2", "a"}) == "env=A=1 env=B=2 | a");
}

TEST_CASE("a number may be glued to its letter") {
  CHECK(shown({"-n4", "-r3", "-t1", "a"}) == "np=4 redirects=3 tee=1 | a");
  CHECK(shown({"-n=4", "a"}) == "np=4 | a");
}

TEST_CASE("options end at the program or at --, whatever the next words look like") {
  CHECK(shown({"-n", "2", "prog", "--nproc", "3", "-x", "--", "-q"}) ==
        "np=2 | prog --nproc 3 -x -- -q");
  CHECK(shown({"-n", "2", "--", "--weird", "-n"}) == "np=2 | --weird -n");
  CHECK(shown({"-m", "pkg.train", "-m"}) == "module | pkg.train -m");
  CHECK(shown({"-"}) == "| -");
  CHECK(shown({"", "-q"}) == "|  -q");
}

TEST_CASE("abbreviations are refused") {
  CHECK(scan_error({"--npro", "4", "a"}) == "unknown option '--npro'; did you mean '--nproc'?");
  CHECK(scan_error({"--tim", "4", "a"}).starts_with("unknown option '--tim'"));
  CHECK(scan_error({"--n", "4", "a"}) == "unknown option '--n'; a letter has one dash");
}

TEST_CASE("unknown flags get the nearest name or what to do instead") {
  CHECK(scan_error({"--nprocs=4"}) == "unknown option '--nprocs'; did you mean '--nproc'?");
  CHECK(scan_error({"--hostfiel", "x"}) ==
        "unknown option '--hostfiel'; did you mean '--hostfile'?");
  CHECK(scan_error({"--log_dri", "x"}) == "unknown option '--log_dri'; did you mean '--log-dir'?");
  CHECK(scan_error({"--zzzzzzzz"}) == "unknown option '--zzzzzzzz'");
  CHECK(scan_error({"-Y"}) == "unknown option '-Y'");
  CHECK(scan_error({"--=3"}) == "unknown option '--'");
}

TEST_CASE("an error about a missing value names the expected value") {
  CHECK(scan_error({"--nproc"}) == "--nproc needs a value: N|auto|gpu|numa|socket|core|xpu");
  CHECK(scan_error({"--log-dir", "--timestamps", "a"}) == "--log-dir needs a value: DIR");
  CHECK(scan_error({"-np", "--", "a"}) == "-np needs a value: N");
  CHECK(scan_error({"--nproc=", "a"}) == "--nproc needs a value after '='");
  CHECK(scan_error({"--nproc", "", "a"}) ==
        "--nproc needs a value: N|auto|gpu|numa|socket|core|xpu");
}

TEST_CASE("edit distance counts insertions, deletions, replacements and swaps") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("nproc", "nproc") == 0);
  CHECK(edit_distance("nprco", "nproc") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("bind", "blind") == 1);
}

TEST_CASE("no two options share a name, and every row has a help text") {
  std::vector<std::string> names;
  for (const auto& row : option_table()) {
    names.emplace_back(row.name);
    if (!row.letter.empty()) names.emplace_back(row.letter);
    for (const auto alias : split_words(row.aliases, ' ')) names.emplace_back(alias);
    CHECK_FALSE(row.help.empty());
    CHECK(find_option(row.name) == &row);
    const bool in_help = help_all_text().find("--" + std::string(row.name)) != std::string::npos;
    CHECK_MESSAGE(in_help == !row.has(kHidden), row.name);
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEST_CASE("--help has usage, examples and the options that most jobs need; --help-all has all") {
  const std::string text = help_text();
  CHECK(text.starts_with("Usage: dlaunch [options] [--] program"));
  CHECK(text.find("dlaunch --nproc 4 ./train") < text.find("Options that most jobs need:"));
  CHECK(text.find("--nproc") != std::string::npos);
  CHECK(text.find("--straggler") == std::string::npos);
  CHECK(text.find("--help-all") != std::string::npos);
  const auto common = std::count_if(option_table().begin(), option_table().end(),
                                    [](const OptionRow& row) { return row.has(kCommon); });
  CHECK(common >= 12);
  CHECK(common <= 15);
  CHECK(help_all_text().find("Failure and time:") != std::string::npos);
  for (const std::string& all : {text, help_all_text()}) {
    for (const auto line : split_words(all, '\n')) CHECK_MESSAGE(line.size() <= 100, line);
  }
}

// The text without its line breaks.
static std::string squeeze(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

TEST_CASE("dlaunch help explains a topic, an option, or another launcher's option") {
  const std::string names = topic_names();
  for (const auto topic : split_words(names, ',')) {
    const std::string name(topic.substr(topic.find_first_not_of(' ')));
    CAPTURE(name);
    const auto text = topic_text(name);
    REQUIRE(text);
    CHECK(text->size() > 100);
  }
  CHECK(topic_text("failure")->starts_with("Failure and time:"));
  CHECK(*topic_text("torchrun") == *topic_text("coming-from-torchrun"));
  CHECK(topic_text("--nproc")->find("Other names: --nproc-per-node") != std::string::npos);
  CHECK(topic_text("xterm")->starts_with("--xterm of mpirun: "));
  const std::string roles = squeeze(*topic_text("--roles"));
  CHECK(roles.find("ends when the chief and the evaluators have ended") != std::string::npos);
  CHECK(topic_text("")->starts_with("Topics:\n  workers, "));
  const auto unknown = topic_text("exit-cods");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().what.starts_with(
      "there is no topic 'exit-cods'; did you mean 'exit-codes'?; topics: workers"));
}

TEST_CASE("no words break the scanner") {
  std::mt19937 random(7);
  const char* pieces[] = {"-",        "--", "=",    "n",    "np",  "nproc", "4",
                          "hostfile", "x",  "_",    "\xff", "env", "genv",  "quiet",
                          "D",        " ",  "help", "0",    ","};
  std::size_t good = 0;
  for (int round = 0; round < 20000; ++round) {
    Words words(random() % 6);
    for (auto& word : words) {
      for (auto left = random() % 5; left > 0; --left) word += pieces[random() % std::size(pieces)];
    }
    auto line = scan_line(words);
    if (line) {
      ++good;
      REQUIRE(line->program.size() <= words.size());
      REQUIRE(std::equal(line->program.rbegin(), line->program.rend(), words.rbegin()));
      for (const auto& option : line->options) {
        REQUIRE(option.row != nullptr);
        REQUIRE((option.row->value.empty() || !option.value.empty()));
      }
    } else {
      REQUIRE(line.error().code == Errc::usage);
      REQUIRE_FALSE(line.error().what.empty());
    }
  }
  CHECK(good > 1000);
}
