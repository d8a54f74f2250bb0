// SHA-256 and HMAC by Nettle, linked statically if the library is there: loading and starting a
// larger cryptographic library takes longer than all other computing at the start of a job.
#pragma once

#include <array>
#include <string_view>

namespace dlaunch {

using Digest = std::array<char, 32>;

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view message);

}  // namespace dlaunch
