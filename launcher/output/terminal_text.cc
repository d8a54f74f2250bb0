#include "launcher/output/terminal_text.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>

#include "base/text.h"

namespace dlaunch {
namespace {

constexpr std::string_view kReset = "\x1b[0m";

struct Character {
  char32_t code = 0;
  std::size_t size = 1;
  bool valid = false;
};

Character character_at(std::string_view text) {
  const std::size_t size = character_size(text);
  if (size == 0) return {};
  const auto first = static_cast<unsigned char>(text[0]);
  char32_t code = size == 1 ? first : first & (0x7fu >> size);
  for (const char byte : text.substr(1, size - 1)) {
    code = code << 6 | (static_cast<unsigned char>(byte) & 0x3f);
  }
  return {code, size, true};
}

// The size of a sequence that begins with ESC, as far as it goes.
std::size_t escape_size(std::string_view text) {
  if (text.size() < 2) return text.size();
  if (text[1] == '[') return control_sequence(text).value_or(text.size());
  if (text[1] != ']') return 2;
  // A title, or a link, ends with BEL or ESC "\".
  const auto end = text.find_first_of("\a\x1b", 2);
  if (end == std::string_view::npos) return text.size();
  return std::min(end + (text[end] == '\a' ? 1 : 2), text.size());
}

}  // namespace

std::optional<std::size_t> control_sequence(std::string_view text) {
  if (text.size() < 2) return text == "\x1b" ? std::nullopt : std::optional<std::size_t>(1);
  if (text[0] != '\x1b' || text[1] != '[') return 1;
  for (std::size_t i = 2; i < text.size(); ++i) {
    if (text[i] >= '@' && text[i] <= '~') return i + 1;
    if (text[i] < ' ' || text[i] > '?') return 1;  // broken off
  }
  return std::nullopt;
}

bool shows_nothing(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text[i] != '\x1b' || i + 1 >= text.size() || text[i + 1] != '[') return false;
    for (i += 2; i < text.size() && (text[i] < '@' || text[i] > '~'); ++i) {
    }
  }
  return true;
}

// The C library knows the widths, but only in a UTF-8 locale, which the user's may not be.
int columns_of(char32_t character) {
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return 1;
  const locale_t before = ::uselocale(utf8);
  const int columns = ::wcwidth(static_cast<wchar_t>(character));
  ::uselocale(before);
  return columns < 0 ? 1 : columns;
}

int columns_of(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Character next = character_at(text);
    const std::size_t size = text[0] == '\x1b' ? escape_size(text) : next.size;
    if (text[0] != '\x1b') columns += columns_of(next.code);
    text.remove_prefix(size);
  }
  return columns;
}

std::string fit_columns(std::string_view text, int columns) {
  std::string line;
  bool colored = false;
  while (!text.empty()) {
    if (text[0] == '\x1b') {
      const auto sequence = text.substr(0, escape_size(text));
      if (sequence.size() > 2 && sequence[1] == '[' && sequence.back() == 'm') {
        line += sequence;
        colored = true;
      }
      text.remove_prefix(sequence.size());
      continue;
    }
    const Character next = character_at(text);
    const std::string_view bytes = text.substr(0, next.size);
    text.remove_prefix(next.size);
    if (next.valid && next.code != '\t' &&
        (next.code < ' ' || (next.code >= 0x7f && next.code < 0xa0))) {
      continue;
    }
    columns -= next.valid && next.code != '\t' ? columns_of(next.code) : 1;
    if (columns < 0) break;
    line += !next.valid ? "?" : next.code == '\t' ? " " : bytes;
  }
  return colored ? line.append(kReset) : line;
}

}  // namespace dlaunch
