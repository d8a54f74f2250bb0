// Answers to dlaunchctl as text. Parts of them come from other hosts: bytes that are no UTF-8
// become U+FFFD.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace dlaunch {

inline std::string json_text(const nlohmann::json& what) {
  return what.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace dlaunch
