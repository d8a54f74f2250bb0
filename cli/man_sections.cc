// Build-time program: writes dlaunch(1) from its hand-written frame. A line "@OPTIONS@" becomes
// the options by group, "@ACCEPTED@" the names that are accepted for users of other launchers,
// "@ENVIRONMENT@" the DLAUNCH_* variables, all from the option table; "@FOREIGN torchrun@" becomes
// the fates of another launcher's options, from its table.
#include <cctype>
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/foreign_options.h"
#include "cli/option_table.h"
#include "cli/read_file.h"

namespace dlaunch {
namespace {

// "N|auto|numa" -> "Ar N | Cm auto | Cm numa": placeholders, and literal words.
std::string value_macros(const OptionRow& row) {
  std::string text;
  for (const auto word : split_words(row.value, '|')) {
    bool literal = true;
    for (const unsigned char c : word) literal = literal && std::isupper(c) == 0;
    text += fmt::format("{}{} {}", text.empty() ? " " : " | ", literal ? "Cm" : "Ar", word);
  }
  return text;
}

// mdoc wants each sentence on a line of its own, and lines of at most 80 columns. No line of text
// may begin like a macro.
std::string filled_lines(std::string_view phrase) {
  std::string text;
  std::size_t used = 0;
  for (const auto word : split_words(phrase, ' ')) {
    const bool new_sentence = text.ends_with('.');
    if (!text.empty()) text += new_sentence || used + word.size() > 78 ? '\n' : ' ';
    const bool begins = text.empty() || text.ends_with('\n');
    used = begins ? word.size() : used + 1 + word.size();
    if (begins && (word[0] == '\'' || word[0] == '.')) text += "\\&";
    text += word;
  }
  return text + ".\n";
}

std::string sentences(std::string_view phrase) {
  std::string text = filled_lines(phrase);
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string flag_macro(std::string_view name) {
  return fmt::format("Fl {}{}", name.size() > 1 ? "Fl " : "", name);
}

std::string option_item(const OptionRow& row) {
  std::string text = ".It ";
  if (!row.letter.empty()) text += flag_macro(row.letter) + " , ";
  text += flag_macro(row.name) + value_macros(row) + "\n" + sentences(row.help);
  if (!row.fallback.empty()) text += fmt::format("The default is {}.\n", row.fallback);
  const auto aliases = split_words(row.aliases, ' ');
  if (!aliases.empty()) {
    text += "Other names:\n";
    for (std::size_t i = 0; i < aliases.size(); ++i) {
      text += fmt::format(".{} {}\n", flag_macro(aliases[i]), i + 1 < aliases.size() ? "," : ".");
    }
  }
  return text;
}

std::string options_section() {
  std::string text;
  for (const Group group : kGroups) {
    text += fmt::format(".Ss {}\n.Bl -tag -width Ds\n", title(group));
    for (const OptionRow& row : option_table()) {
      if (row.group == group && !row.has(kHidden)) text += option_item(row);
    }
    text += ".El\n";
  }
  return text;
}

std::string accepted_section() {
  std::string text = ".Bl -tag -width Ds\n";
  for (const OptionRow& row : option_table()) {
    if (row.has(kHidden)) text += option_item(row);
  }
  return text + ".El\n";
}

std::string environment_section() {
  std::string text = fmt::format(".Bl -tag -width {} -compact\n", env_name("report-bindings"));
  for (const OptionRow& row : option_table()) {
    if (row.has(kHidden) || row.has(kNoEnv)) continue;
    text += fmt::format(".It Ev {}\n.{}\n", env_name(row), flag_macro(row.name));
  }
  return text + ".El\n";
}

// `@FOREIGN torchrun@`: a launcher's options of one fate.
std::string foreign_list(const ForeignTable& table, Fate fate, std::string_view title) {
  std::string items;
  for (const ForeignOption& option : table.options) {
    if (option.fate != fate) continue;
    items += ".It";
    const auto names = split_words(option.names, ' ');
    for (std::size_t i = 0; i < names.size(); ++i) {
      items += fmt::format("{} {}", i > 0 ? " ," : "", flag_macro(names[i]));
    }
    std::string text(option.text);
    for (auto at = text.find("{}"); at != std::string::npos; at = text.find("{}")) {
      text.replace(at, 2, "VALUE");
    }
    items += '\n' + filled_lines(text);
  }
  if (items.empty()) return "";
  return fmt::format(".Pp\n{}\n.Bl -tag -width Ds -compact\n{}.El\n", title, items);
}

std::string foreign_section(std::string_view launcher) {
  std::string text;
  for (const ForeignTable& table : foreign_tables()) {
    if (table.launcher != launcher) continue;
    text += foreign_list(table, Fate::ours, "These are taken as options of dlaunch:");
    text += foreign_list(table, Fate::nothing, "These are accepted and change nothing:");
    text += foreign_list(table, Fate::refused, "These are refused:");
  }
  return text;
}

std::string filled(std::string_view frame) {
  std::string text;
  for (const auto line : split_words(frame, '\n')) {
    if (line == "@OPTIONS@") {
      text += options_section();
    } else if (line == "@ACCEPTED@") {
      text += accepted_section();
    } else if (line == "@ENVIRONMENT@") {
      text += environment_section();
    } else if (line.starts_with("@FOREIGN ")) {
      text += foreign_section(line.substr(9, line.size() - 10));
    } else {
      text += std::string(line) + '\n';
    }
  }
  return text;
}

}  // namespace
}  // namespace dlaunch

int main(int argc, char** argv) {
  const auto frame = dlaunch::read_file(argc == 2 ? argv[1] : "");
  if (!frame) {
    std::fprintf(stderr, "usage: man_sections FRAME: %s\n", frame.error().what.c_str());
    return 1;
  }
  const std::string text = dlaunch::filled(*frame);
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
