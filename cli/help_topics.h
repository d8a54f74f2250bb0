// `dlaunch help TOPIC`: one thing explained on a screen.
#pragma once

#include <string>

#include "base/result.h"

namespace dlaunch {

inline constexpr const char* kHelpWord = "help";

// The names of all topics, separated by ", ".
std::string topic_names();

// The text of a topic, of an option ("--nproc", "nproc"), or the list of topics for "". Errors
// (usage): there is no such topic; names the nearest.
Result<std::string> topic_text(const std::string& topic);

}  // namespace dlaunch
