#include "base/fnv1a.h"

#include <string_view>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

std::uint64_t fnv1a_of(std::string_view text) {
  Fnv1a hash;
  hash.add(text);
  return hash.value();
}

}  // namespace

// Landon Noll's test vectors.
TEST_CASE("FNV-1a: the published hashes") {
  CHECK(fnv1a_of("") == 0xcbf29ce484222325);
  CHECK(fnv1a_of("a") == 0xaf63dc4c8601ec8c);
  CHECK(fnv1a_of("foobar") == 0x85944171f73967e8);
  CHECK(fnv1a_of("\xff") != fnv1a_of("\x7f"));
}
