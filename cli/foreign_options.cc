#include "cli/foreign_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "cli/foreign_tables.h"

namespace dlaunch {
namespace {

bool equal_spelling(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x == '_' ? '-' : x) == (y == '_' ? '-' : y); });
}

// "--env=HOROVOD_CYCLE_TIME={}" with the value in place of "{}".
std::vector<std::string> words_of(std::string_view text, const std::string& value) {
  std::vector<std::string> words;
  for (const auto word : split_words(text, ' ')) {
    words.emplace_back(word);
    const auto at = words.back().find("{}");
    if (at != std::string::npos) words.back().replace(at, 2, value);
  }
  return words;
}

}  // namespace

std::span<const ForeignTable> foreign_tables() {
  static const ForeignTable tables[] = {{"torchrun", torchrun_options()},
                                        {"mpirun", mpirun_options()},
                                        {"mpiexec", mpiexec_options()},
                                        {"accelerate", accelerate_options()},
                                        {"deepspeed", deepspeed_options()},
                                        {"horovodrun", horovodrun_options()},
                                        {"srun", srun_options()}};
  return tables;
}

ForeignMatch find_foreign(std::string_view name) {
  for (const ForeignTable& table : foreign_tables()) {
    for (const ForeignOption& option : table.options) {
      for (const auto known : split_words(option.names, ' ')) {
        if (equal_spelling(known, name)) return {&option, table.launcher};
      }
    }
  }
  return {};
}

Result<Meaning> meaning_of(const ForeignOption& option, const std::vector<std::string>& values) {
  if (option.translate != nullptr) return option.translate(values);
  switch (option.fate) {
    case Fate::ours:
      return Meaning{.words = words_of(option.text, values.empty() ? "" : values[0])};
    case Fate::nothing:
      return Meaning{.note = std::string(option.text)};
    case Fate::refused:
      break;
  }
  return usage_error(std::string(option.text));
}

}  // namespace dlaunch
