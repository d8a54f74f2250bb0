#include "base/sha256.h"

#include <nettle/hmac.h>
#include <nettle/sha2.h>

#include <cstdint>

namespace dlaunch {
namespace {

static_assert(SHA256_DIGEST_SIZE == std::tuple_size_v<Digest>);

const std::uint8_t* octets(std::string_view bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

std::uint8_t* octets(Digest& digest) { return reinterpret_cast<std::uint8_t*>(digest.data()); }

}  // namespace

Digest sha256(std::string_view bytes) {
  Digest digest;
  sha256_ctx hash;
  sha256_init(&hash);
  sha256_update(&hash, bytes.size(), octets(bytes));
  sha256_digest(&hash, digest.size(), octets(digest));
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view message) {
  Digest digest;
  hmac_sha256_ctx hash;
  hmac_sha256_set_key(&hash, key.size(), octets(key));
  hmac_sha256_update(&hash, message.size(), octets(message));
  hmac_sha256_digest(&hash, digest.size(), octets(digest));
  return digest;
}

}  // namespace dlaunch
