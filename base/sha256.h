// SHA-256 (FIPS 180-4). Our own, because loading and starting a library of cryptography takes
// longer than all else that the start of a job computes; tests hold it against OpenSSL's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dlaunch {

class Sha256 {
 public:
  static constexpr std::size_t kBlock = 64;
  using Digest = std::array<char, 32>;

  void add(std::string_view bytes);
  // Once, after the last of them.
  Digest end();

 private:
  void take_block(const char* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<char, kBlock> open_{};  // of a block that is not full
  std::uint64_t size_ = 0;           // of all bytes so far
};

// HMAC of them all, one after the other, with SHA-256 (RFC 2104).
Sha256::Digest hmac_sha256(std::string_view key, std::string_view message);

}  // namespace dlaunch
