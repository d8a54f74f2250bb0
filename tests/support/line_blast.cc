// Writes numbered lines of varying length as fast as it can: "RANK STREAM NUMBER CHECKSUM FILLER".
// usage: line_blast MEGABYTES [both]     both: every other line goes to stderr
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "line_format.h"

namespace {

void write_all(int fd, const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + at, bytes.size() - at);
    if (n <= 0) std::exit(1);
    at += static_cast<std::size_t>(n);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank_text = std::getenv("RANK");
  if (argc < 2 || rank_text == nullptr) return 64;
  const int rank = std::atoi(rank_text);
  const std::size_t total = std::strtoull(argv[1], nullptr, 10) << 20;
  const int streams = argc > 2 ? 2 : 1;
  // Flushed at odd places, so that reads end in the middle of lines.
  std::string buffer[2];
  std::size_t written = 0;
  for (unsigned long number = 0; written < total; ++number) {
    const int stream = static_cast<int>(number % static_cast<unsigned long>(streams));
    const std::string line = make_line(rank, stream, number) + '\n';
    written += line.size();
    buffer[stream] += line;
    if (buffer[stream].size() > 60000) {
      const std::string rest = buffer[stream].substr(buffer[stream].size() - 37);
      buffer[stream].resize(buffer[stream].size() - 37);
      write_all(stream + 1, buffer[stream]);
      buffer[stream] = rest;
    }
  }
  for (int stream = 0; stream < streams; ++stream) write_all(stream + 1, buffer[stream]);
  return 0;
}
