// Build-time program: writes the completion of dlaunch for bash, zsh or fish.
#include <cctype>
#include <cstdio>
#include <string_view>

#include <fmt/format.h>

#include "cli/completion/completion.h"

namespace dlaunch {

std::string kind_of(const OptionRow& row) {
  std::string capitals;
  for (const unsigned char c : row.value) {
    if (std::isupper(c) == 0) break;
    capitals += static_cast<char>(c);
  }
  // A word that stands beside one of these is left out.
  if (capitals == "FILE" || capitals == "DIR" || capitals == "HOST") return capitals;
  std::string words;
  for (const auto word : choices(row)) words += fmt::format("{}{}", words.empty() ? "" : " ", word);
  return words;
}

std::vector<std::string> spellings(const OptionRow& row) {
  std::vector<std::string> all = {fmt::format("--{}", row.name), fmt::format("-{}", row.name)};
  if (!row.letter.empty()) all.push_back(fmt::format("-{}", row.letter));
  for (const auto alias : split_words(row.aliases, ' ')) {
    all.push_back(fmt::format("-{}", alias));
    if (alias.size() > 1) all.push_back(fmt::format("--{}", alias));
  }
  return all;
}

}  // namespace dlaunch

int main(int argc, char** argv) {
  const std::string_view shell = argc == 2 ? argv[1] : "";
  const std::string text = shell == "bash"   ? dlaunch::bash_completion()
                           : shell == "zsh"  ? dlaunch::zsh_completion()
                           : shell == "fish" ? dlaunch::fish_completion()
                                             : "";
  if (text.empty()) return std::fputs("usage: completion bash|zsh|fish\n", stderr), 64;
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
