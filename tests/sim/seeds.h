// What the simulators' programs share: the options for seeds, and the seed of a run that an
// assertion ends.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

namespace dlaunch::sim {

struct Seeds {
  std::uint64_t first = 0, last = 0;
  bool trace = false, all = false;
};

// Takes the option at argv[i], with its value. False: it is none of these.
inline bool take_option(int argc, char** argv, int& i, Seeds& seeds) {
  const std::string word = argv[i];
  const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
  if (word == "--all") {
    seeds.all = true;
  } else if (word == "--trace") {
    seeds.trace = true;
  } else if (word == "--seed" && value != nullptr) {
    seeds.first = std::strtoull(argv[++i], nullptr, 10);
    seeds.last = seeds.first + 1;
  } else if (word == "--seeds" && value != nullptr && std::strchr(value, ':') != nullptr) {
    seeds.first = std::strtoull(argv[++i], nullptr, 10);
    seeds.last = std::strtoull(std::strchr(value, ':') + 1, nullptr, 10);
  } else {
    return false;
  }
  return true;
}

// The same for --bug NAME, with a name of to_string(Bug).
template <class Bug>
bool take_bug(int argc, char** argv, int& i, int bugs, Bug& bug) {
  if (std::strcmp(argv[i], "--bug") != 0 || i + 1 >= argc) return false;
  for (int b = 0; b < bugs; ++b) {
    if (std::strcmp(argv[i + 1], to_string(static_cast<Bug>(b))) != 0) continue;
    bug = static_cast<Bug>(b);
    ++i;
    return true;
  }
  return false;
}

inline volatile std::uint64_t g_seed = 0;  // of the run

// For a handler of SIGABRT: an assertion in a core ends the process, and this names the seed.
inline void tell_seed() {
  char text[64];
  std::uint64_t n = g_seed;
  char* p = text + sizeof text;
  *--p = '\n';
  do *--p = static_cast<char>('0' + n % 10);
  while ((n /= 10) > 0);
  constexpr char kWhat[] = "sim: aborted; replay it with --trace --seed ";
  (void)!::write(2, kWhat, sizeof kWhat - 1);
  (void)!::write(2, p, static_cast<std::size_t>(text + sizeof text - p));
}

}  // namespace dlaunch::sim
