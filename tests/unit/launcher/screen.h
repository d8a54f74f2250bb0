// The parts of a terminal that progress bars need: lines, "\r", up, erase, wrapping.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/terminal_text.h"

namespace dlaunch {

class Screen {
 public:
  explicit Screen(int columns = 80) : columns_(static_cast<std::size_t>(columns)) {}

  void write(std::string_view bytes) {
    while (!bytes.empty()) bytes.remove_prefix(take(bytes));
  }
  // Without spaces at the end.
  std::vector<std::string> rows() const {
    std::vector<std::string> all;
    for (const auto& row : rows_) {
      std::string& text = all.emplace_back();
      for (const auto& cell : row) text += cell;
      text.resize(text.find_last_not_of(' ') + 1);
    }
    return all;
  }

 private:
  using Row = std::vector<std::string>;  // a character in each cell

  std::size_t take(std::string_view bytes) {
    if (bytes[0] == '\n') {
      down();
      column_ = 0;
    } else if (bytes[0] == '\r') {
      column_ = 0;
    } else if (bytes[0] == '\x1b') {
      return sequence(bytes);
    } else {
      std::size_t size = 1;
      while (size < bytes.size() && (static_cast<unsigned char>(bytes[size]) & 0xc0) == 0x80)
        ++size;
      put(std::string(bytes.substr(0, size)));
      return size;
    }
    return 1;
  }
  void down() {
    if (++at_ == rows_.size()) rows_.emplace_back();
  }
  void put(std::string character) {
    if (column_ == columns_) {
      down();
      column_ = 0;
    }
    Row& row = rows_[at_];
    if (row.size() <= column_) row.resize(column_ + 1, " ");
    row[column_++] = std::move(character);
  }
  std::size_t sequence(std::string_view bytes) {
    const std::size_t size = control_sequence(bytes).value_or(bytes.size());
    switch (bytes[size - 1]) {
      case 'A': {
        const auto rows = static_cast<std::size_t>(std::atoi(bytes.data() + 2));
        at_ -= std::min(at_, rows == 0 ? 1 : rows);
        break;
      }
      case 'J':
        rows_.resize(at_ + 1);
        [[fallthrough]];
      case 'K':
        if (rows_[at_].size() > column_) rows_[at_].resize(column_);
        break;
      default:
        break;
    }
    return size;
  }

  const std::size_t columns_;
  std::vector<Row> rows_{1};
  std::size_t at_ = 0, column_ = 0;
};

}  // namespace dlaunch
