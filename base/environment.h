// Looks up a variable of the environment: the process' own, or one that a test brings.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dlaunch {

// nullopt: it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

}  // namespace dlaunch
