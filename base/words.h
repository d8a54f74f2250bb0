// WordTable: the values of an enum in the words in which users write them. One table serves the
// option, its help, the variable of the environment, error messages and --dry-run.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch {

// A value's own word comes before its other spellings.
template <class T, std::size_t N>
using WordTable = std::array<std::pair<std::string_view, T>, N>;

// "": the value has no word.
template <class T, std::size_t N>
constexpr std::string_view word_of(const WordTable<T, N>& words, T value) {
  for (const auto& [word, its_value] : words) {
    if (its_value == value) return word;
  }
  return "";
}

template <class T, std::size_t N>
constexpr std::optional<T> value_of(const WordTable<T, N>& words, std::string_view word) {
  for (const auto& [its_word, value] : words) {
    if (its_word == word) return value;
  }
  return std::nullopt;
}

// "auto, shm or tcp"
template <class T, std::size_t N>
std::string list_of(const WordTable<T, N>& words) {
  std::string list;
  for (std::size_t i = 0; i < N; ++i) {
    if (i > 0) list += i + 1 < N ? ", " : " or ";
    list += words[i].first;
  }
  return list;
}

template <const auto& kWords>
struct JoinedWords {
  static constexpr std::size_t size() {
    std::size_t size = kWords.size() - 1;
    for (const auto& [word, value] : kWords) size += word.size();
    return size;
  }
  static constexpr std::array<char, size()> kText = [] {
    std::array<char, size()> text{};
    std::size_t at = 0;
    for (std::size_t i = 0; i < kWords.size(); ++i) {
      if (i > 0) text[at++] = '|';
      for (const char c : kWords[i].first) text[at++] = c;
    }
    return text;
  }();
};

// "auto|shm|tcp", for the option table.
template <const auto& kWords>
inline constexpr std::string_view kChoices{JoinedWords<kWords>::kText.data(),
                                           JoinedWords<kWords>::kText.size()};

}  // namespace dlaunch
