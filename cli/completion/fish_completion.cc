// The fish completion of dlaunch, from the option table.
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/completion/completion.h"

namespace dlaunch {
namespace {

constexpr std::string_view kFishTop =
    R"(# fish completion for dlaunch: options, their values, then the program's own completion.

# Whether the word under the cursor comes before the program.
function __dlaunch_before_program
    set -l words (commandline -opc)
    set -e words[1]
    test "$words[1]" = doctor; and set -e words[1]
    set -l is_value 0
    for word in $words
        if test $is_value = 1
            set is_value 0
            continue
        end
        switch $word
            case --
                return 1
            case '-*=*'
            case '-*'
                if contains -- (string replace -a _ - -- $word) $__dlaunch_with_value
                    set is_value 1
                end
            case '*'
                return 1
        end
    end
    return 0
end

function __dlaunch_of_doctor
    set -l words (commandline -opc)
    test "$words[2]" = doctor
end

complete -c dlaunch -n 'test (count (commandline -opc)) = 1' -a doctor -d 'Looks at the hosts'
complete -c dlaunch -n 'test (count (commandline -opc)) = 1' -a report -d 'Makes a page from a run'
complete -c dlaunch -n 'not __dlaunch_of_doctor' \
    -a '(__fish_complete_subcommand -- $__dlaunch_with_value)'
)";

std::string fish_quoted(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return "'" + quoted + "'";
}

std::string fish_value(const std::string& kind) {
  if (kind == "FILE") return " -r -F";
  if (kind == "DIR") return " -x -a '(__fish_complete_directories (commandline -ct))'";
  if (kind == "HOST") return " -x -a '(__fish_print_hostnames)'";
  return kind.empty() ? " -x" : fmt::format(" -x -a '{}'", kind);
}

std::string fish_option(const OptionRow& row) {
  std::string text = fmt::format("complete -c dlaunch -n __dlaunch_before_program -l {}", row.name);
  if (!row.letter.empty()) text += fmt::format(" -s {}", row.letter);
  if (!row.value.empty()) text += fish_value(kind_of(row));
  return text + fmt::format(" -d {}\n", fish_quoted(row.help));
}

}  // namespace

std::string fish_completion() {
  std::string with_value = "\nset -g __dlaunch_with_value", options;
  for (const OptionRow& row : option_table()) {
    if (!row.value.empty()) {
      for (const auto& spelled : spellings(row)) with_value += ' ' + spelled;
    }
    if (!row.has(kHidden)) options += fish_option(row);
  }
  return std::string(kFishTop) + with_value + "\n\n" + options;
}

}  // namespace dlaunch
