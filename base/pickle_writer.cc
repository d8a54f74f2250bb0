#include "base/pickle_writer.h"

#include <limits>

namespace dlaunch {

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
}

// A text that came before is a reference to the memo.
void PickleWriter::text(std::string_view words) {
  if (const auto known = known_texts_.find(words); known != known_texts_.end()) {
    bytes_ += 'j';  // LONG_BINGET
    return little_endian(known->second, 4);
  }
  bytes_ += 'X';  // BINUNICODE
  little_endian(words.size(), 4);
  bytes_ += words;
  const auto place = static_cast<std::uint32_t>(known_texts_.size());
  known_texts_.emplace(words, place);
  bytes_ += 'r';  // LONG_BINPUT
  little_endian(place, 4);
}

void PickleWriter::integer(std::int64_t value) {
  using Small = std::numeric_limits<std::int32_t>;
  const bool small = value >= Small::min() && value <= Small::max();
  bytes_ += small ? "J" : "\x8a\x08";  // BININT, LONG1
  little_endian(static_cast<std::uint64_t>(value), small ? 4 : 8);
}

}  // namespace dlaunch
