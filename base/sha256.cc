#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dlaunch {
namespace {

constexpr std::array<std::uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const char* at) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(at);
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

template <class Number>
void put_big_endian(Number number, char* at) {
  for (std::size_t i = 0; i < sizeof number; ++i) {
    at[i] = static_cast<char>(number >> (8 * (sizeof number - 1 - i)));
  }
}

}  // namespace

// The letters are the standard's.
void Sha256::take_block(const char* block) {
  using std::rotr;
  std::array<std::uint32_t, 64> w;
  for (std::size_t t = 0; t < 16; ++t) w[t] = big_endian(block + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t x = w[t - 15], y = w[t - 2];
    w[t] = w[t - 16] + (rotr(x, 7) ^ rotr(x, 18) ^ x >> 3) + w[t - 7] +
           (rotr(y, 17) ^ rotr(y, 19) ^ y >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t t1 =
        h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRounds[t] + w[t];
    const std::uint32_t t2 =
        (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> after = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state_.size(); ++i) state_[i] += after[i];
}

void Sha256::add(std::string_view bytes) {
  const std::size_t held = size_ % kBlock;
  size_ += bytes.size();
  if (held > 0) {
    const std::size_t more = std::min(kBlock - held, bytes.size());
    bytes.copy(open_.data() + held, more);
    bytes.remove_prefix(more);
    if (held + more < kBlock) return;
    take_block(open_.data());
  }
  for (; bytes.size() >= kBlock; bytes.remove_prefix(kBlock)) take_block(bytes.data());
  bytes.copy(open_.data(), bytes.size());
}

Sha256::Digest Sha256::end() {
  std::array<char, kBlock + 8> padding{'\x80'};
  const std::size_t held = size_ % kBlock;
  const std::size_t zeros_end = (held < kBlock - 8 ? kBlock : 2 * kBlock) - 8 - held;
  put_big_endian(std::uint64_t{8} * size_, padding.data() + zeros_end);
  add({padding.data(), zeros_end + 8});
  Digest digest;
  for (std::size_t i = 0; i < state_.size(); ++i) put_big_endian(state_[i], digest.data() + 4 * i);
  return digest;
}

Sha256::Digest hmac_sha256(std::string_view key, std::string_view message) {
  std::array<char, Sha256::kBlock> pad{};
  if (key.size() > pad.size()) {
    Sha256 shortened;
    shortened.add(key);
    const auto digest = shortened.end();
    std::copy(digest.begin(), digest.end(), pad.begin());
  } else {
    key.copy(pad.data(), key.size());
  }
  Sha256 inner, outer;
  for (char& c : pad) c = static_cast<char>(c ^ 0x36);
  inner.add({pad.data(), pad.size()});
  inner.add(message);
  for (char& c : pad) c = static_cast<char>(c ^ 0x36 ^ 0x5c);
  outer.add({pad.data(), pad.size()});
  const auto digest = inner.end();
  outer.add({digest.data(), digest.size()});
  return outer.end();
}

}  // namespace dlaunch
