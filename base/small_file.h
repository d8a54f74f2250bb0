// Files of a few lines, like the kernel's in /proc and /sys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace dlaunch {

// The whole file; nullopt if it cannot be read.
std::optional<std::string> read_small_file(const std::filesystem::path& path);

// The same; "" if it cannot be read.
std::string text_of(const std::filesystem::path& path);

// Its first line, without the line end; "": there is none.
std::string first_line_of(const std::filesystem::path& path);

}  // namespace dlaunch
