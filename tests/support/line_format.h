// The lines that line_blast writes and line_check expects.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

// A line of about 100 bytes, now and then of several thousand.
inline std::string make_line(int rank, int stream, unsigned long number) {
  const std::uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15u ^ static_cast<std::uint64_t>(rank);
  const std::size_t filler = number % 1000 == 7 ? 20000 : 30 + mixed % 90;
  char head[80];
  std::snprintf(head, sizeof head, "%d %d %lu %016llx ", rank, stream, number,
                static_cast<unsigned long long>(mixed));
  return head + std::string(filler, static_cast<char>('a' + mixed % 26));
}
