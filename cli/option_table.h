// The option table: every option of dlaunch, once. It feeds the command line scanner, the
// registration with CLI11, --help, the DLAUNCH_* environment, the keys of a --config file, the
// OPTIONS and ENVIRONMENT sections of dlaunch(1) and the shell completions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/contract.h"
#include "base/text.h"
#include "cli/options.h"

namespace dlaunch {

enum class Group { workers, placement, output, failure, nodes, general };
inline constexpr Group kGroups[] = {Group::workers, Group::placement, Group::output,
                                    Group::failure, Group::nodes,     Group::general};
std::string_view title(Group group);

enum Trait : unsigned {
  kHidden = 1,     // accepted for users of other launchers, not shown in --help
  kNoEnv = 2,      // not read from the environment
  kNoFile = 4,     // not read from a --config file
  kCommon = 16,    // among the few that --help begins with
  kWorkerVar = 8,  // workers get the variable with a value of the outer job: a dlaunch that a
                   // worker starts ignores it
};

using Target = std::variant<Text Options::*, Switch Options::*, List Options::*>;

struct OptionRow {
  std::string_view name;      // the long name, without dashes
  std::string_view letter;    // "n": also "-n"; "": none
  std::string_view aliases;   // other launchers' names, separated by blanks; accepted silently
  std::string_view value;     // "N|auto|numa", "FILE"; "": a switch. Lower-case words are literal
  std::string_view fallback;  // the default, for people; "": not mentioned
  Group group;
  std::string_view help;  // a phrase for --help and the man page
  Target target;
  unsigned traits = 0;

  bool has(Trait trait) const { return (traits & trait) != 0; }
};

std::span<const OptionRow> option_table();

// The row of that name or alias; '_' counts as '-'. A name of one letter is that letter's option.
const OptionRow* find_option(std::string_view name);

// "DLAUNCH_LOG_DIR"
std::string env_name(const OptionRow& row);
std::string env_name(std::string_view option, std::string_view prefix = contract::kPrefix);

// The literal words of a value: "N|auto|numa" -> auto, numa.
std::vector<std::string_view> choices(const OptionRow& row);

}  // namespace dlaunch
