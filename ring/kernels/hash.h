// A hash of 64 bits for data that ranks compare: XXH3, which is equal on every machine, and about
// as quick as reading the data. Of changes of the data one in 2^64 leaves it as it was. Not for
// input that an attacker chooses. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlaunch {

// Hashes of pieces of data can be chained: `seed` is then the hash of the piece before.
std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);

}  // namespace dlaunch
