// SHA-256 and HMAC by Nettle, linked statically where there is such a library: loading and starting
// a larger one of cryptography takes longer than all else that the start of a job computes.
#pragma once

#include <array>
#include <string_view>

namespace dlaunch {

using Digest = std::array<char, 32>;

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view message);

}  // namespace dlaunch
