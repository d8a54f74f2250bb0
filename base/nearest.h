// Suggestions for an unknown word.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch {

// The number of letters to insert, delete, replace or swap with a neighbour to make one word of the
// other (Damerau-Levenshtein, optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, if it is near: at most a third of the word's letters differ, or
// one letter of a short word. The first of several. "" if none is near, or if the word has one
// letter only.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> candidates);

// "; did you mean 'core'?", or "" if nothing is near.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace dlaunch
