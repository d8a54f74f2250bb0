// Rows as lines of equal columns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dlaunch {

// Columns as wide as their widest cell and two blanks apart; the first `right` of them, numbers,
// are aligned to the right.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t right = 0);

}  // namespace dlaunch
