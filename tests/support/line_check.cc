// Reads dlaunch's output of line_blast's workers and counts lines that are torn, lost or out of
// order within a rank's stream.
// usage: line_check WORKERS MEGABYTES [both]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "line_format.h"

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  const auto workers = static_cast<std::size_t>(std::atoi(argv[1]));
  const std::size_t total = std::strtoull(argv[2], nullptr, 10) << 20;
  const unsigned long streams = argc > 3 ? 2 : 1;
  std::vector<unsigned long> next(workers * 2);
  for (std::size_t i = 0; i < next.size(); ++i) next[i] = i % 2;
  std::vector<std::size_t> bytes(workers);
  unsigned long lines = 0, torn = 0, misplaced = 0;
  char* line = nullptr;
  std::size_t room = 0;
  for (ssize_t n; (n = ::getline(&line, &room, stdin)) > 0; ++lines) {
    unsigned shown = 0, rank = 0, stream = 0;
    unsigned long number = 0;
    if (std::sscanf(line, "[%u] %u %u %lu", &shown, &rank, &stream, &number) != 4 ||
        shown != rank || rank >= workers || stream > 1) {
      ++torn;
      continue;
    }
    const std::string expected =
        make_line(static_cast<int>(rank), static_cast<int>(stream), number);
    const char* text = std::strchr(line, ']') + 2;
    if (std::string(text, static_cast<std::size_t>(line + n - text)) != expected + "\n") ++torn;
    auto& due = next[rank * 2 + stream];
    if (number != due) ++misplaced;
    due = number + streams;
    bytes[rank] += expected.size() + 1;
  }
  std::free(line);
  std::size_t least = total;
  for (const std::size_t b : bytes) least = b < least ? b : least;
  std::printf("%lu lines, %lu torn, %lu lost or out of order, least %zu of %zu bytes\n", lines,
              torn, misplaced, least, total);
  return torn == 0 && misplaced == 0 && least >= total ? 0 : 1;
}
