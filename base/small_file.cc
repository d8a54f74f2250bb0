#include "base/small_file.h"

#include <fstream>
#include <iterator>

namespace dlaunch {

std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string text_of(const std::filesystem::path& path) {
  return read_small_file(path).value_or("");
}

std::string first_line_of(const std::filesystem::path& path) {
  const std::string text = text_of(path);
  return text.substr(0, text.find('\n'));
}

}  // namespace dlaunch
