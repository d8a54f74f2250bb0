// Writes into a pipe that has room.
#pragma once

#include <unistd.h>

#include <string_view>

#include <doctest/doctest.h>

#include "base/unique_fd.h"

namespace dlaunch {

inline void put(const UniqueFd& fd, std::string_view text) {
  REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

}  // namespace dlaunch
