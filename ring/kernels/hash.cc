#include "ring/kernels/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dlaunch {

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace dlaunch
