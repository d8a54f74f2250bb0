#include "cli/help.h"

#include <fmt/format.h>

#include "cli/option_table.h"
#include "cli/plan_builder.h"

namespace dlaunch {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kHelpColumn = 38;

constexpr std::string_view kTop = R"(Usage: dlaunch [options] [--] program [argument ...]
       dlaunch doctor [options]                looks at the hosts beforehand

  dlaunch --nproc 4 ./train --epochs 10       four workers on this machine
  dlaunch --nproc auto -m mypackage.train     a Python module, one worker per usable CPU
  dlaunch -np 8 --log-dir logs ./train        eight workers, their output also in files

Options end at the program; what follows is its own. '-' and '_' are equal in long names.
A flag comes before the environment (DLAUNCH_LOG_DIR for --log-dir), that before --config.
)";

std::string left_side(const OptionRow& row) {
  std::string text = row.letter.empty() ? "      " : fmt::format("  -{}, ", row.letter);
  text += fmt::format("--{}", row.name);
  if (!row.value.empty()) text += fmt::format(" {}", row.value);
  return text;
}

// Breaks `text` at blanks, from the help column on; `line` is what stands left of it.
void append_wrapped(std::string& out, std::string line, std::string_view text) {
  if (line.size() + 2 > kHelpColumn) {
    out += line + '\n';
    line.clear();
  }
  line.resize(kHelpColumn, ' ');
  std::size_t used = kHelpColumn;
  for (const auto word : split_words(text, ' ')) {
    if (used > kHelpColumn && used + 1 + word.size() > kColumns) {
      out += line + '\n';
      line.assign(kHelpColumn, ' ');
      used = kHelpColumn;
    }
    if (used > kHelpColumn) line += ' ';
    line += word;
    used = line.size();
  }
  out += line + '\n';
}

}  // namespace

std::string help_text() {
  std::string text(kTop);
  for (const Group group : kGroups) {
    text += fmt::format("\n{}:\n", title(group));
    for (const OptionRow& row : option_table()) {
      if (row.group != group || row.has(kHidden)) continue;
      std::string help(row.help);
      if (!row.fallback.empty()) help += fmt::format(" [{}]", row.fallback);
      append_wrapped(text, left_side(row), help);
    }
  }
  text += "\nman dlaunch has more: what workers see, exit codes, coming from other launchers.\n";
  return text;
}

std::string error_text(const Error& error) {
  std::string text;
  for (const auto line : split_words(error.what, '\n')) text += fmt::format("dlaunch: {}\n", line);
  if (exit_code_of(error) == kExitUsage) text += "Try 'dlaunch --help'\n";
  return text;
}

}  // namespace dlaunch
