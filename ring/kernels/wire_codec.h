// Wire codecs: float32 in fewer bytes, for slow links between hosts. Lossy; opt-in. Pure.
//
//   bf16   the upper half of each float, rounded to nearest even: 2 bytes for 4
//   int8   blocks of 256 floats, each with a float32 scale, max |x| / 127, and an int8 for each
//          element, rounded to nearest even: 260 bytes for 1024. A block with a NaN or an infinity
//          becomes NaN as a whole, so that it is noticed.
//   fp8    as int8, with the scale max |x| / 448 and an e4m3 for each element: smaller values keep
//          three bits of their fraction
//   int4   as int8, with blocks of 128 floats, the scale max |x| / 7 and four bits for each
//          element: 68 bytes for 512
//   topk   the 16 largest of 256 floats, of equal ones the first, each as its place and a bf16; all
//          others become 0: 48 bytes for 1024. Only with error feedback, so it has no word here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/words.h"

namespace dlaunch {

enum class WireCodec : std::uint8_t { none, bf16, int8, fp8, int4, topk };
// The last one for a sum without error feedback.
inline constexpr WireCodec kLastWireCodec = WireCodec::int4;
inline constexpr WordTable<WireCodec, 5> kWireCodecWords = {{{"none", WireCodec::none},
                                                             {"bf16", WireCodec::bf16},
                                                             {"int8", WireCodec::int8},
                                                             {"fp8", WireCodec::fp8},
                                                             {"int4", WireCodec::int4}}};
// A buffer that is cut at multiples of it is encoded as a whole one: all blocks end there.
inline constexpr std::size_t kCodecUnit = 256;

std::size_t encoded_bytes(WireCodec codec, std::size_t count);
void encode_floats(WireCodec codec, const float* from, std::size_t count, std::byte* to);
void decode_floats(WireCodec codec, const std::byte* from, std::size_t count, float* to);

}  // namespace dlaunch
