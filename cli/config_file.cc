#include "cli/config_file.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>

namespace dlaunch {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view name) : rest_(text), name_(name) {}

  Result<std::vector<ConfigEntry>> run() {
    std::vector<ConfigEntry> entries;
    while (skip_blank_lines()) {
      ConfigEntry entry;
      entry.line = line_;
      if (!parse_entry(entry)) return *error_;
      for (const auto& other : entries) {
        if (other.key == entry.key) {
          fail(fmt::format("'{}' was set in line {} already", entry.key, other.line));
          return *error_;
        }
      }
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  bool parse_entry(ConfigEntry& entry) {
    if (peek() == '[') return fail("sections are not used: put the options at the top");
    while (is_bare(peek())) entry.key += take();
    if (entry.key.empty()) return fail("expected: option = value");
    skip_blanks();
    if (peek() != '=') return fail(fmt::format("expected '=' after '{}'", entry.key));
    take();
    skip_blanks();
    if (!(peek() == '[' ? parse_array(entry) : parse_value(entry))) return false;
    skip_blanks();
    skip_comment();
    if (!rest_.empty() && peek() != '\n') return fail("unexpected text after the value");
    return true;
  }

  bool parse_array(ConfigEntry& entry) {
    take();
    while (true) {
      skip_blank_lines();
      if (peek() == ']') break;
      if (!parse_value(entry)) return false;
      skip_blank_lines();
      if (peek() == ',') {
        take();
      } else if (peek() != ']') {
        return fail("expected ',' or ']' in an array");
      }
    }
    take();
    return entry.values.empty() ? fail("an empty array sets nothing") : true;
  }

  bool parse_value(ConfigEntry& entry) {
    std::string value;
    if (peek() == '"') {
      if (!parse_string(value)) return false;
    } else if (peek() == '\'') {
      take();
      while (!rest_.empty() && peek() != '\'' && peek() != '\n') value += take();
      if (peek() != '\'') return fail("a string without its closing '");
      take();
    } else {
      while (is_bare(peek()) || peek() == '.' || peek() == '+') value += take();
      if (!is_plain(value)) {
        return fail(fmt::format("expected a number, true, false or a string in quotes{}",
                                value.empty() ? "" : ", not " + value));
      }
    }
    if (value.empty()) return fail("an empty string sets nothing");
    entry.values.push_back(std::move(value));
    return true;
  }

  bool parse_string(std::string& value) {
    take();
    while (!rest_.empty() && peek() != '"' && peek() != '\n') {
      char c = take();
      if (c == '\\') {
        const auto at = std::string_view("\"\\nt").find(peek());
        if (rest_.empty() || at == std::string_view::npos) {
          return fail("unknown escape in a string: use \\\\, \\\", \\n or \\t");
        }
        c = "\"\\\n\t"[at];
        take();
      }
      value += c;
    }
    if (peek() != '"') return fail("a string without its closing \"");
    take();
    return true;
  }

  static bool is_bare(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  }
  static bool is_plain(std::string_view value) {
    if (value == "true" || value == "false") return true;
    std::size_t digits = 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      const bool sign = i == 0 && (value[i] == '-' || value[i] == '+');
      const bool digit = std::isdigit(static_cast<unsigned char>(value[i])) != 0;
      if (!digit && !sign && value[i] != '.') return false;
      digits += digit ? 1 : 0;
    }
    return digits > 0 && std::count(value.begin(), value.end(), '.') <= 1;
  }

  char peek() const { return rest_.empty() ? '\0' : rest_[0]; }
  char take() {
    const char c = peek();
    if (c == '\n') ++line_;
    rest_.remove_prefix(std::min<std::size_t>(1, rest_.size()));
    return c;
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') take();
  }
  void skip_comment() {
    if (peek() != '#') return;
    while (!rest_.empty() && peek() != '\n') take();
  }
  // True if text is left.
  bool skip_blank_lines() {
    while (true) {
      skip_blanks();
      skip_comment();
      if (peek() != '\n') return !rest_.empty();
      take();
    }
  }
  bool fail(const std::string& what) {
    error_ = Error{.code = Errc::protocol, .what = fmt::format("{}:{}: {}", name_, line_, what)};
    return false;
  }

  std::string_view rest_;
  std::string_view name_;
  int line_ = 1;
  std::optional<Error> error_;
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view text, std::string_view name) {
  return Parser(text, name).run();
}

}  // namespace dlaunch
