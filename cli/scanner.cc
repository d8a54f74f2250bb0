#include "cli/scanner.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "cli/foreign_options.h"
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

// srun's "-K1": the letter takes a value directly behind it.
bool takes_glued(const ForeignOption* option) {
  return option != nullptr && (option->values == 1 || option->values == kAfterEquals);
}

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
    const ForeignOption* theirs = find_foreign(parts.name.substr(0, 1)).option;
    if (letter != nullptr ? !letter->value.empty() : takes_glued(theirs)) {
      parts.row = letter;
      parts.value = parts.name.substr(1);
      parts.name = parts.name.substr(0, 1);
      parts.spelled = word.substr(0, 2);
    }
  }
  return parts;
}

// A letter has one dash.
ForeignMatch foreign_of(const Word& parts) {
  const bool letter = parts.name.size() == 1;
  return letter && parts.spelled.starts_with("--") ? ForeignMatch() : find_foreign(parts.name);
}

bool is_known_option(std::string_view word) {
  if (word == "--") return true;
  if (!looks_like_option(word)) return false;
  const Word parts = take_apart(word);
  return parts.row != nullptr || foreign_of(parts).option != nullptr;
}

// MPICH's "-env NAME VALUE"; ours is "-env NAME=VALUE".
bool is_mpich_env(const std::vector<std::string>& words, std::size_t at) {
  return words[at] == "-env" && at + 2 < words.size() &&
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

// Scans a line word by word. Records an invalid word and skips it, so that one run reports all of
// them.
class Scanner {
 public:
  explicit Scanner(const std::vector<std::string>& words) : words_(words) {}

  Result<ScannedLine> scan() {
    for (; at_ < words_.size() && looks_like_option(words_[at_]); ++at_) {
      if (words_[at_] == "--") {
        ++at_;
        line_.by_dashes = true;
        break;
      }
      Word parts = take_apart(words_[at_]);
      if (is_mpich_env(words_, at_)) parts.row = nullptr;
      if (!take(parts)) break;
    }
    if (!problems_.empty()) return usage_error(fmt::format("{}", fmt::join(problems_, "\n")));
    line_.program.assign(words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end());
    return std::move(line_);
  }

 private:
  // False: the end of the option is unknown.
  bool take(const Word& parts) {
    if (parts.row != nullptr) return take_own(parts);
    const ForeignMatch match = foreign_of(parts);
    return match.option != nullptr ? take_foreign(parts, match) : pass_over(parts);
  }

  bool take_own(const Word& parts) {
    auto given = finish(parts, words_, at_);
    if (!given) return complain(given.error().what), true;
    line_.options.push_back(std::move(*given));
    return true;
  }

  bool take_foreign(const Word& parts, const ForeignMatch& match) {
    const std::string who = fmt::format("'{}' of {}", parts.spelled, match.launcher);
    auto values = values_of(parts, *match.option);
    if (!values) return complain(values.error().what), true;
    auto meaning = meaning_of(*match.option, *values);
    if (!meaning) return complain(who + ": " + meaning.error().what), true;
    for (const std::string& word : meaning->words) {
      const Word ours = take_apart(word);
      line_.options.push_back(
          {ours.row, std::string(ours.value.value_or("")), std::string(parts.spelled)});
    }
    if (!meaning->words.empty()) {
      line_.notes.push_back(fmt::format("{} is taken as {}", who, fmt::join(meaning->words, " ")));
    }
    if (!meaning->note.empty()) {
      line_.notes.push_back(fmt::format("{} is accepted: {}", who, meaning->note));
    }
    if (!meaning->warning.empty()) {
      line_.warnings.push_back(fmt::format("{}: {}", parts.spelled, meaning->warning));
    }
    return true;
  }

  // The words that follow it, or the text after '=': "-genv A 1" and "-genv A=1".
  Result<std::vector<std::string>> values_of(const Word& parts, const ForeignOption& option) {
    std::vector<std::string> values;
    if (parts.value) values.emplace_back(*parts.value);
    if (option.values == kAfterEquals) return values;
    if (option.values == 0 && parts.value) {
      return usage_error(fmt::format("{} takes no value", parts.spelled));
    }
    while (static_cast<int>(values.size()) < option.values) {
      if (at_ + 1 >= words_.size()) {
        return usage_error(fmt::format("{} needs {}", parts.spelled,
                                       option.values == 1 ? "a value" : "two values"));
      }
      values.push_back(words_[++at_]);
      if (option.values == 2 && values.size() == 1) split_pair(values);
    }
    return values;
  }

  // Open MPI and MPICH also take "NAME=VALUE" for two words.
  static void split_pair(std::vector<std::string>& values) {
    const auto equals = values[0].find('=');
    if (equals == std::string::npos) return;
    values.push_back(values[0].substr(equals + 1));
    values[0].resize(equals);
  }

  // An unknown option may have a value: then another option follows.
  bool pass_over(const Word& parts) {
    complain(fmt::format("unknown option '{}'{}", parts.spelled, advice_for(parts.name)));
    if (at_ + 1 >= words_.size() || looks_like_option(words_[at_ + 1])) return true;
    if (parts.value) return false;
    const bool value = at_ + 2 < words_.size() && is_meant_for_us(words_[at_ + 2]);
    if (value) ++at_;
    return value;
  }

  static bool is_meant_for_us(std::string_view word) {
    return is_known_option(word) ||
           (looks_like_option(word) && !nearest_option(take_apart(word).name).empty());
  }

  void complain(std::string what) {
    if (std::find(problems_.begin(), problems_.end(), what) == problems_.end()) {
      problems_.push_back(std::move(what));
    }
  }

  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
  ScannedLine line_;
  std::vector<std::string> problems_;
};

}  // namespace

Result<ScannedLine> scan_line(const std::vector<std::string>& words) {
  return Scanner(words).scan();
}

}  // namespace dlaunch
