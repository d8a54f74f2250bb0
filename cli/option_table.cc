#include "cli/option_table.h"

#include <algorithm>
#include <cctype>

#include "cli/option_rows.h"

namespace dlaunch {
namespace {

std::vector<OptionRow> all_rows() {
  std::vector<OptionRow> all;
  for (const auto rows :
       {workers_rows(), output_rows(), failure_rows(), nodes_rows(), general_rows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

bool equal_names(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x == '_' ? '-' : x) == (y == '_' ? '-' : y); });
}

bool is_called(const OptionRow& row, std::string_view name) {
  if (equal_names(row.name, name) || row.letter == name) return !name.empty();
  for (const auto alias : split_words(row.aliases, ' ')) {
    if (equal_names(alias, name)) return true;
  }
  return false;
}

}  // namespace

std::string_view title(Group group) {
  switch (group) {
    case Group::workers:
      return "Workers";
    case Group::placement:
      return "Placement";
    case Group::output:
      return "Output";
    case Group::failure:
      return "Failure and time";
    case Group::nodes:
      return "Nodes and rendezvous";
    case Group::general:
      return "General";
  }
  return "";
}

std::span<const OptionRow> option_table() {
  static const std::vector<OptionRow> table = all_rows();
  return table;
}

const OptionRow* find_option(std::string_view name) {
  for (const OptionRow& row : option_table()) {
    if (is_called(row, name)) return &row;
  }
  return nullptr;
}

std::string env_name(const OptionRow& row) { return env_name(row.name); }

std::string env_name(std::string_view option, std::string_view prefix) {
  std::string name(prefix);
  for (const char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::vector<std::string_view> choices(const OptionRow& row) {
  std::vector<std::string_view> words;
  for (const auto word : split_words(row.value, '|')) {
    const bool literal = std::none_of(word.begin(), word.end(),
                                      [](unsigned char c) { return std::isupper(c) != 0; });
    if (literal) words.push_back(word);
  }
  return words;
}

}  // namespace dlaunch
