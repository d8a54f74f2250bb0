// Runs a fuzz target over its examples, over the files of a folder and over thousands of mutations
// of each, the same ones every time. The target must accept each example and each file, unless the
// file's name begins with "refused": an example that the parser no longer reads tests nothing.
// usage: replay TARGET CORPUS_FOLDER
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz.h"

namespace {

// False: the target refuses it.
bool feed(const FuzzTarget& target, const std::string& bytes) {
  return target.take(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()) == 0;
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

struct Example {
  std::string name, bytes;
};

std::vector<Example> examples_of(const FuzzTarget& target, const char* folder) {
  std::vector<Example> all;
  if (target.examples != nullptr) {
    for (const auto& bytes : target.examples()) {
      all.push_back({"example " + std::to_string(all.size()), bytes});
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    all.push_back({entry.path().filename(), std::string(std::istreambuf_iterator<char>(file), {})});
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const auto& targets = FuzzTarget::all();
  const auto target = std::find_if(targets.begin(), targets.end(),
                                   [&](const FuzzTarget& one) { return one.name == argv[1]; });
  if (target == targets.end()) {
    std::printf("there is no target %s\n", argv[1]);
    return 64;
  }
  std::mt19937 random(1);
  int refused = 0;
  const auto examples = examples_of(*target, argv[2]);
  for (const auto& [name, bytes] : examples) {
    if (!feed(*target, bytes) && !name.starts_with("refused")) {
      std::printf("the target refuses %s\n", name.c_str());
      ++refused;
    }
    for (int i = 0; i < 5000; ++i) feed(*target, mutated(bytes, random));
  }
  std::printf("%zu examples and 5000 mutations of each\n", examples.size());
  return refused > 0 || examples.empty() ? 1 : 0;
}
