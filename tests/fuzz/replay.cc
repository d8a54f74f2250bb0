// Runs a fuzz target over the files of a folder and over thousands of mutations of each, the same
// ones every time. usage: replay CORPUS_FOLDER
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "fuzz.h"

namespace {

void feed(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

std::string mutated(std::string bytes, std::mt19937& random) {
  for (unsigned i = 0, changes = 1 + random() % 4; i < changes; ++i) {
    const std::size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 4) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.insert(at, 1 + random() % 8, static_cast<char>(random()));
        break;
      case 2:
        bytes.erase(at, 1 + random() % 8);
        break;
      default:
        bytes += bytes.substr(at);
        if (bytes.size() > 65536) bytes.resize(65536);
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  std::mt19937 random(1);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    feed(bytes);
    for (int i = 0; i < 5000; ++i) feed(mutated(bytes, random));
    ++files;
  }
  std::printf("%d files and 5000 mutations of each\n", files);
  return files > 0 ? 0 : 1;
}
