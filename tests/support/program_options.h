// The options of programs that tests run: "--name VALUE", or "--name" alone for a bool.
#pragma once

#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <variant>

using OptionPlace = std::variant<bool*, int*, std::uint64_t*, std::string*>;

template <class Number>
bool read_option(std::string_view text, Number* place) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *place);
  return error == std::errc() && end == text.data() + text.size();
}
inline bool read_option(std::string_view text, std::string* place) {
  *place = text;
  return true;
}

// False: a word is no option, lacks its value, or has one that is not a number.
inline bool read_options(int argc, char** argv,
                         const std::map<std::string_view, OptionPlace>& places) {
  for (int i = 1; i < argc; ++i) {
    const auto option = places.find(argv[i]);
    if (option == places.end()) return false;
    if (bool* const* flag = std::get_if<bool*>(&option->second)) {
      **flag = true;
      continue;
    }
    if (++i == argc) return false;
    const std::string_view value = argv[i];
    const bool good = std::visit(
        [&](auto* place) {
          if constexpr (std::is_same_v<decltype(place), bool*>)
            return false;
          else
            return read_option(value, place);
        },
        option->second);
    if (!good) return false;
  }
  return true;
}
