// The zsh completion of dlaunch, from the option table.
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/completion/completion.h"

namespace dlaunch {
namespace {

constexpr std::string_view kZshTop =
    R"(#compdef dlaunch
# zsh completion for dlaunch: options, their values, then the program's own completion.

_dlaunch_program() {
  if (( CURRENT == 1 )); then
    _alternative 'commands:command:(doctor report)' 'programs:program:_command_names -e' \
      'files:file:_files'
  elif [[ $words[1] == doctor ]]; then
    _arguments -s $_dlaunch_options
  elif [[ $words[1] == report ]]; then
    _arguments '--out[the page]:FILE:_files' ':DIR:_files -/'
  else
    _normal
  fi
}

local -a _dlaunch_options=(
)";

constexpr std::string_view kZshEnd = R"()

_arguments -s -A '-*' $_dlaunch_options '*::program:_dlaunch_program'
)";

// For text within single quotes; a colon or a bracket would end a part of the specification.
std::string zsh_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\'') {
      escaped += "'\\''";
      continue;
    }
    if (c == ':' || c == '[' || c == ']' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string zsh_value(const OptionRow& row) {
  const std::string kind = kind_of(row);
  const std::string action = kind == "FILE"   ? "_files"
                             : kind == "DIR"  ? "_files -/"
                             : kind == "HOST" ? "_hosts"
                             : kind.empty()   ? " "
                                              : "(" + kind + ")";
  return fmt::format(":{}:{}", zsh_escaped(row.value), action);
}

std::string zsh_option(const OptionRow& row) {
  const std::string rest =
      fmt::format("[{}]{}'\n", zsh_escaped(row.help), row.value.empty() ? "" : zsh_value(row));
  std::string text = fmt::format("  '--{}{}{}", row.name, row.value.empty() ? "" : "=", rest);
  if (!row.letter.empty()) text += fmt::format("  '-{}{}", row.letter, rest);
  return text;
}

}  // namespace

std::string zsh_completion() {
  std::string text(kZshTop);
  for (const OptionRow& row : option_table()) {
    if (!row.has(kHidden)) text += zsh_option(row);
  }
  return text + std::string(kZshEnd);
}

}  // namespace dlaunch
