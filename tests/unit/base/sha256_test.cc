#include "base/sha256.h"

#include <string>

#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/secret.h"

using namespace dlaunch;

namespace {

// Not one byte like the other, and not the same in two of them.
std::string noise(std::size_t size) {
  std::string bytes;
  for (std::uint32_t x = 0x9e3779b9u + static_cast<std::uint32_t>(size); bytes.size() < size;) {
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    bytes += static_cast<char>(x >> 11);
  }
  return bytes;
}

std::string as_text(const Sha256::Digest& digest) { return {digest.data(), digest.size()}; }

std::string openssl_sha256(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  REQUIRE(EVP_Digest(bytes.data(), bytes.size(), digest, nullptr, EVP_sha256(), nullptr) == 1);
  return {reinterpret_cast<char*>(digest), 32};
}

std::string openssl_hmac(const std::string& key, const std::string& message) {
  unsigned char mac[EVP_MAX_MD_SIZE];
  REQUIRE(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
               reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac,
               nullptr) != nullptr);
  return {reinterpret_cast<char*>(mac), 32};
}

}  // namespace

TEST_CASE("SHA-256 agrees with the examples of FIPS 180") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 is that of OpenSSL at every size around a block, in pieces of every size") {
  for (std::size_t size = 0; size <= 4 * Sha256::kBlock; ++size) {
    const std::string bytes = noise(size);
    const std::string want = openssl_sha256(bytes);
    for (std::size_t piece = 1; piece <= size + 1; piece += 1 + piece / 9) {
      Sha256 hash;
      for (std::size_t at = 0; at < size; at += piece) hash.add(bytes.substr(at, piece));
      CHECK_MESSAGE(as_text(hash.end()) == want, size, " bytes in pieces of ", piece);
    }
  }
}

TEST_CASE("HMAC is that of OpenSSL with keys shorter and longer than a block") {
  for (std::size_t key = 1; key <= 3 * Sha256::kBlock; ++key) {
    for (const std::size_t size : {0, 1, 55, 56, 63, 64, 65, 300}) {
      const std::string secret = noise(key), message = noise(size + 1000).substr(0, size);
      CHECK_MESSAGE(as_text(hmac_sha256(secret, message)) == openssl_hmac(secret, message),
                    "key of ", key, ", message of ", size);
    }
  }
  CHECK(as_text(hmac_sha256("", "x")) == openssl_hmac("", "x"));
}

TEST_CASE("MACs differ by any one of their bits") {
  const std::string mac = as_text(hmac_sha256("key", "message"));
  CHECK(macs_equal(mac, mac));
  CHECK_FALSE(macs_equal(mac, mac.substr(1)));
  for (std::size_t bit = 0; bit < 8 * mac.size(); ++bit) {
    std::string other = mac;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    CHECK_FALSE(macs_equal(mac, other));
  }
}
