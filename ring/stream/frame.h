// Frame: the unit on a stream socket of the ring. A header of 64 bytes, then `bytes` of payload.
// Little endian: magic u32, kind u8, three zero bytes, round u64, bytes u64, count u64, what u32,
// number u32, 24 zero bytes. The zero bytes fill the header to a cache line, because the kernel
// copies by rep movsb: Zen 3 and 4 do so at a tenth of the speed if a target lies 1 to 31 bytes
// further into its page than the source (see copy_cached() in ring/kernels/copy.h). Headers of
// whole lines move what follows by whole lines; with headers of 40 bytes one payload in a hundred
// lay so. Collective frames carry the CallSignature of their call (their place in the call follows
// from the order of the frames: both sides know the schedule); message frames carry the message's
// count, dtype and tag. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "ring/call/plane.h"

namespace dlaunch {

enum class FrameKind : std::uint8_t { collective = 1, message = 2 };

struct FrameHeader {
  FrameKind kind = FrameKind::collective;
  std::uint64_t bytes = 0;   // of the payload that follows
  std::uint64_t count = 0;   // elements of the call or message
  std::uint32_t what = 0;    // CallSignature::packed; of a message: its dtype
  std::uint32_t number = 0;  // CallSignature::seq; of a message: its tag

  CallSignature signature() const { return {.count = count, .packed = what, .seq = number}; }
  dl_dtype message_dtype() const { return static_cast<dl_dtype>(what); }
  int message_tag() const { return static_cast<int>(number); }
  bool operator==(const FrameHeader&) const = default;
};

inline constexpr std::size_t kFrameHeaderBytes = 64;
using FrameBytes = std::span<std::byte, kFrameHeaderBytes>;
using ConstFrameBytes = std::span<const std::byte, kFrameHeaderBytes>;

FrameHeader collective_frame(const CallSignature& signature, std::size_t bytes);
FrameHeader message_frame(std::size_t count, dl_dtype dtype, int tag);

void encode_frame(const FrameHeader& header, std::uint64_t round, FrameBytes out);
// Errc::protocol with the reason ("a frame of round 3, this is round 4"); the caller names the
// rank. A valid header has a known kind; a message's dtype is valid, its tag is not negative and
// its payload is exactly count elements, below kMaxMessageBytes.
Result<FrameHeader> decode_frame(ConstFrameBytes bytes, std::uint64_t round);

inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 46;

}  // namespace dlaunch
