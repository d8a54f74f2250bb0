#define DOCTEST_CONFIG_IMPLEMENT
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

// The user who runs the tests may have options in the environment.
int main(int argc, char** argv) {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "DLAUNCH_", 8) == 0) {
      names.emplace_back(*entry, std::strcspn(*entry, "="));
    }
  }
  for (const auto& name : names) ::unsetenv(name.c_str());
  return doctest::Context(argc, argv).run();
}
