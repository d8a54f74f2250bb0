#include "cli/suggest.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/nearest.h"
#include "cli/foreign_options.h"
#include "cli/option_table.h"

namespace dlaunch {

std::string nearest_option(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  std::vector<std::string_view> candidates;
  const auto add = [&](std::string_view names) {
    for (const auto one : split_words(names, ' ')) candidates.push_back(one);
  };
  for (const OptionRow& row : option_table()) {
    add(row.name);
    add(row.aliases);
  }
  for (const ForeignTable& table : foreign_tables()) {
    for (const ForeignOption& option : table.options) {
      if (option.fate != Fate::refused) add(option.names);
    }
  }
  return std::string(nearest_word(wanted, candidates));
}

std::string advice_for(std::string_view name) {
  if (name.size() == 1 && find_option(name) != nullptr) return "; a letter has one dash";
  const std::string near = nearest_option(name);
  return near.empty() ? near : fmt::format("; did you mean '--{}'?", near);
}

}  // namespace dlaunch
