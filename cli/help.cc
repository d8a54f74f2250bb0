#include "cli/help.h"

#include <fmt/format.h>

#include "cli/help_topics.h"
#include "cli/option_table.h"
#include "cli/plan_builder.h"

namespace dlaunch {
namespace {

constexpr std::size_t kColumns = 100;  // of a line, at most
constexpr std::size_t kHelpColumn = 38;

constexpr std::string_view kTop = R"(Usage: dlaunch [options] [--] program [argument ...]
       dlaunch doctor [--json] [options]       looks at the hosts beforehand
       dlaunch report DIR [--out FILE]         makes a page from a run with --run-dir
       dlaunch help [topic | option]

  dlaunch --nproc 4 ./train --epochs 10       four workers on this machine
  dlaunch --nproc auto -m mypackage.train     a Python module, one worker per usable CPU
  dlaunch -np 8 --log-dir logs ./train        eight workers, their output also in files

Options end at the program; what follows is its own. '-' and '_' are equal in long names.
A flag counts before the environment (DLAUNCH_LOG_DIR for --log-dir), and both before --config.
)";

std::string left_side(const OptionRow& row) {
  std::string text = row.letter.empty() ? "      " : fmt::format("  -{}, ", row.letter);
  text += fmt::format("--{}", row.name);
  if (!row.value.empty()) text += fmt::format(" {}", row.value);
  return text;
}

// Breaks `text` at blanks, from the help column on; `line` is the text left of it.
void append_wrapped(std::string& out, std::string line, std::string_view text) {
  if (line.size() + 2 > kHelpColumn) {
    out += line + '\n';
    line.clear();
  }
  line.resize(kHelpColumn, ' ');
  out += wrapped(text, kHelpColumn).replace(0, kHelpColumn, line);
}

void append_row(std::string& out, const OptionRow& row) {
  std::string help(row.help);
  if (!row.fallback.empty()) help += fmt::format(" [{}]", row.fallback);
  append_wrapped(out, left_side(row), help);
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t column) {
  std::string out, line(column, ' ');
  for (const auto word : split_words(text, ' ')) {
    if (line.size() > column && line.size() + 1 + word.size() > kColumns) {
      out += line + '\n';
      line.assign(column, ' ');
    }
    if (line.size() > column) line += ' ';
    line += word;
  }
  return out + line + '\n';
}

std::string help_text() {
  std::string text(kTop);
  text += "\nOptions that most jobs need:\n";
  for (const OptionRow& row : option_table()) {
    if (row.has(kCommon)) append_row(text, row);
  }
  text += "\ndlaunch --help-all prints all options, and dlaunch help TOPIC explains one thing:\n";
  append_wrapped(text, "", topic_names());
  text += "man dlaunch has everything.\n";
  return text;
}

std::string help_all_text() {
  std::string text(kTop);
  for (const Group group : kGroups) text += "\n" + group_text(group);
  text += "\nman dlaunch has more: what workers see, exit codes, coming from other launchers.\n";
  return text;
}

std::string group_text(Group group) {
  std::string text = fmt::format("{}:\n", title(group));
  for (const OptionRow& row : option_table()) {
    if (row.group == group && !row.has(kHidden)) append_row(text, row);
  }
  return text;
}

std::string option_text(const OptionRow& row) {
  std::string text;
  append_row(text, row);
  std::string others;
  for (const auto alias : split_words(row.aliases, ' ')) {
    others +=
        fmt::format("{}{}{}", others.empty() ? "" : ", ", alias.size() > 1 ? "--" : "-", alias);
  }
  if (!others.empty()) append_wrapped(text, "", "Other names: " + others);
  if (!row.has(kNoEnv)) append_wrapped(text, "", "Environment: " + env_name(row));
  return text;
}

std::string error_text(const Error& error) {
  std::string text;
  for (const auto line : split_words(error.what, '\n')) text += fmt::format("dlaunch: {}\n", line);
  if (exit_code_of(error) == kExitUsage) text += "Try 'dlaunch --help'\n";
  return text;
}

}  // namespace dlaunch
