// The bash completion of dlaunch, from the option table.
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/completion/completion.h"
#include "cli/option_table.h"

namespace dlaunch {
namespace {

constexpr std::string_view kScriptTop =
    R"(# bash completion for dlaunch: options, their values, then the program's own completion.

# Sets $kind to how the value of option $1 is completed; fails if it takes none.
_dlaunch_value() {
  local name=${1#-}
  name=${name#-}
  case ${name//_/-} in
)";

constexpr std::string_view kRest = R"(    *) return 1 ;;
  esac
}

# Fills COMPREPLY with what $2 may become, of the kind $1.
_dlaunch_complete() {
  case $1 in
    FILE) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    DIR) mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    HOST) mapfile -t COMPREPLY < <(compgen -A hostname -- "$2") ;;
    PROGRAM) mapfile -t COMPREPLY < <(compgen -c -- "$2"; compgen -f -- "$2") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2") ;;
  esac
  case $1 in FILE | DIR | PROGRAM) compopt -o filenames 2>/dev/null ;; esac
}

_dlaunch() {
  local cur=${COMP_WORDS[COMP_CWORD]} kind='' program=0 value_of='' i=1 word
  COMPREPLY=()
  if [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == report ]]; then
    kind=DIR
    [[ ${COMP_WORDS[COMP_CWORD - 1]} != --out ]] || kind=FILE
    [[ $cur != -* ]] || kind=--out
    _dlaunch_complete "$kind" "$cur"
    return
  fi
  [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == doctor ]] && i=2
  while ((i < COMP_CWORD)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -- ]]; then
      program=$((i + 1))
      break
    elif [[ $word != -?* ]]; then
      program=$i
      break
    fi
    ((i++))
    # Bash makes three words of --name=value.
    if [[ ${COMP_WORDS[i]} == = ]]; then
      ((i++))
      ((i > COMP_CWORD)) && cur=''
    elif ! _dlaunch_value "$word"; then
      continue
    fi
    if ((i >= COMP_CWORD)); then
      value_of=$word
      break
    fi
    ((i++))
  done

  if [[ -n $value_of ]]; then
    _dlaunch_value "$value_of" && _dlaunch_complete "$kind" "$cur"
  elif ((program > 0 && program < COMP_CWORD)); then
    if declare -F _comp_command_offset >/dev/null; then
      _comp_command_offset "$program"
    elif declare -F _command_offset >/dev/null; then
      _command_offset "$program"
    else
      _dlaunch_complete FILE "$cur"
    fi
  elif [[ $program == 0 && ($cur == -* || ${COMP_WORDS[1]} == doctor) ]]; then
    _dlaunch_complete "$_dlaunch_options" "$cur"
  else
    _dlaunch_complete PROGRAM "$cur"
    [[ $COMP_CWORD -gt 1 || -z $cur || doctor != "$cur"* ]] || COMPREPLY+=(doctor)
    [[ $COMP_CWORD -gt 1 || -z $cur || report != "$cur"* ]] || COMPREPLY+=(report)
  fi
}
complete -F _dlaunch dlaunch
)";

std::string value_case(const OptionRow& row) {
  std::string names(row.name);
  if (!row.letter.empty()) names += fmt::format(" | {}", row.letter);
  for (const auto alias : split_words(row.aliases, ' ')) names += fmt::format(" | {}", alias);
  return fmt::format("    {}) kind='{}' ;;\n", names, kind_of(row));
}

}  // namespace

std::string bash_completion() {
  std::string text(kScriptTop);
  std::string options;
  for (const OptionRow& row : option_table()) {
    if (!row.value.empty()) text += value_case(row);
    if (row.has(kHidden)) continue;
    options += fmt::format("{}--{}", options.empty() ? "" : " ", row.name);
    if (!row.letter.empty()) options += fmt::format(" -{}", row.letter);
  }
  return text + std::string(kRest) + fmt::format("_dlaunch_options='{}'\n", options);
}

}  // namespace dlaunch
