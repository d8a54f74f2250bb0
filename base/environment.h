// Looks up an environment variable: the process's own, or a test's.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dlaunch {

// nullopt: the variable is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

}  // namespace dlaunch
