// JSON as text, and values of it that may be null.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace dlaunch {

// Parts may come from programs and other hosts: bytes that are no UTF-8 become U+FFFD, for which
// dump() throws otherwise.
template <class Json = nlohmann::json>
std::string json_text(const Json& what, int indent = -1) {
  return what.dump(indent, ' ', false, Json::error_handler_t::replace);
}

inline nlohmann::json number_or_null(std::int64_t number) {  // null: below 0
  return number >= 0 ? nlohmann::json(number) : nlohmann::json();
}
inline nlohmann::json text_or_null(std::string_view text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}
template <class T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}
inline nlohmann::json seconds_or_null(std::optional<Duration> time) {
  return time ? nlohmann::json(to_seconds(*time)) : nlohmann::json();
}

}  // namespace dlaunch
