// Files of a few lines, as the kernel has them in /proc and /sys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace dlaunch {

// All of it; nothing where it cannot be read.
std::optional<std::string> read_small_file(const std::filesystem::path& path);

// The same; "" where it cannot be read.
std::string text_of(const std::filesystem::path& path);

// Its first line, without the end of it; "": there is none.
std::string first_line_of(const std::filesystem::path& path);

}  // namespace dlaunch
