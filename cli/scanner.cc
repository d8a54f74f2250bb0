#include "cli/scanner.h"

#include <cctype>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "cli/suggest.h"

namespace dlaunch {
namespace {

bool looks_like_option(std::string_view word) { return word.size() > 1 && word[0] == '-'; }

struct Word {
  const OptionRow* row = nullptr;
  std::string_view name;                  // without dashes
  std::string_view spelled;               // with dashes
  std::optional<std::string_view> value;  // after '=' or glued to a letter
};

// "--log_dir=x", "-np", "-n4". Without row: unknown.
Word take_apart(std::string_view word) {
  const bool two_dashes = word.starts_with("--");
  Word parts;
  parts.spelled = word.substr(0, word.find('='));
  parts.name = parts.spelled.substr(two_dashes ? 2 : 1);
  if (parts.spelled.size() < word.size()) parts.value = word.substr(parts.spelled.size() + 1);
  // A letter has one dash.
  if (parts.name.size() > 1 || !two_dashes) parts.row = find_option(parts.name);
  if (parts.row == nullptr && !two_dashes && !parts.value && parts.name.size() > 1 &&
      std::isdigit(static_cast<unsigned char>(parts.name[1])) != 0) {
    const OptionRow* letter = find_option(parts.name.substr(0, 1));
    if (letter != nullptr && !letter->value.empty()) {
      parts.row = letter;
      parts.value = parts.name.substr(1);
      parts.spelled = word.substr(0, 2);
    }
  }
  return parts;
}

bool is_known_option(std::string_view word) {
  return word == "--" || (looks_like_option(word) && take_apart(word).row != nullptr);
}

// MPICH's "-env NAME VALUE" and "-genv NAME VALUE".
bool is_mpich_env(const std::vector<std::string>& words, std::size_t at) {
  return (words[at] == "-genv" || words[at] == "-env") && at + 2 < words.size() &&
         words[at + 1].find('=') == std::string::npos;
}

Result<GivenOption> finish(const Word& parts, const std::vector<std::string>& words,
                           std::size_t& at) {
  GivenOption given{parts.row, "", std::string(parts.spelled)};
  if (parts.value) {
    given.value = *parts.value;
    if (given.value.empty())
      return usage_error(fmt::format("{} needs a value after '='", parts.spelled));
  } else if (!parts.row->value.empty()) {
    if (at + 1 >= words.size() || words[at + 1].empty() || is_known_option(words[at + 1])) {
      return usage_error(fmt::format("{} needs a value: {}", parts.spelled, parts.row->value));
    }
    given.value = words[++at];
  }
  return given;
}

}  // namespace

Result<ScannedLine> scan_line(const std::vector<std::string>& words) {
  ScannedLine line;
  std::size_t at = 0;
  for (; at < words.size() && looks_like_option(words[at]); ++at) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    if (is_mpich_env(words, at)) {
      line.options.push_back({find_option("env"), words[at + 1] + "=" + words[at + 2], words[at]});
      at += 2;
      continue;
    }
    const Word parts = take_apart(words[at]);
    if (parts.row == nullptr) {
      return usage_error(
          fmt::format("unknown option '{}'{}", parts.spelled, advice_for(parts.name)));
    }
    auto given = finish(parts, words, at);
    if (!given) return given.error();
    line.options.push_back(std::move(*given));
  }
  line.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return line;
}

}  // namespace dlaunch
