// Wire codecs: float32 in fewer bytes, for slow links between hosts. Lossy; opt-in. Pure.
//
//   bf16   the upper half of each float, rounded to nearest even: 2 bytes for 4
//   int8   blocks of 256 floats, each with a float32 scale, max |x| / 127, and an int8 for each
//          element, rounded to nearest even: 260 bytes for 1024. A block with a NaN or an infinity
//          becomes NaN as a whole, so that it is noticed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/words.h"

namespace dlaunch {

enum class WireCodec : std::uint8_t { none, bf16, int8 };
inline constexpr WordTable<WireCodec, 3> kWireCodecWords = {
    {{"none", WireCodec::none}, {"bf16", WireCodec::bf16}, {"int8", WireCodec::int8}}};

std::size_t encoded_bytes(WireCodec codec, std::size_t count);
void encode_floats(WireCodec codec, const float* from, std::size_t count, std::byte* to);
void decode_floats(WireCodec codec, const std::byte* from, std::size_t count, float* to);

}  // namespace dlaunch
