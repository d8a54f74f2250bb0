#include "ring/stream/frame.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "base/ring_names.h"
#include "ring/call/operation.h"

namespace dlaunch {
namespace {

constexpr std::uint32_t kMagic = 0x326e6c64;  // "dln2"

struct Layout {
  std::uint32_t magic;
  std::uint8_t kind;
  std::uint8_t zero[3];
  std::uint64_t round;
  std::uint64_t bytes;
  std::uint64_t count;
  std::uint32_t what;
  std::uint32_t number;
  std::uint8_t zero_at_end[24];
};
static_assert(sizeof(Layout) == kFrameHeaderBytes);

Result<FrameHeader> checked_message(const FrameHeader& header) {
  const bool known = header.what < std::size(kDtypeNames);
  const std::size_t element = known ? dtype_bytes(header.message_dtype()) : 0;
  if (element == 0)
    return protocol_error(fmt::format("a message of unknown dtype {}", header.what));
  const int tag = header.message_tag();
  if (tag < 0 && !is_library_tag(tag)) return protocol_error("a message with a negative tag");
  if (header.count > kMaxMessageBytes / element || header.bytes != header.count * element) {
    return protocol_error(
        fmt::format("a message of {} elements in {} bytes", header.count, header.bytes));
  }
  return header;
}

}  // namespace

FrameHeader collective_frame(const CallSignature& signature, std::size_t bytes) {
  return {.kind = FrameKind::collective,
          .bytes = bytes,
          .count = signature.count,
          .what = signature.packed,
          .number = signature.seq};
}

FrameHeader message_frame(std::size_t count, dl_dtype dtype, int tag) {
  return {.kind = FrameKind::message,
          .bytes = count * dtype_bytes(dtype),
          .count = count,
          .what = static_cast<std::uint32_t>(dtype),
          .number = static_cast<std::uint32_t>(tag)};
}

void encode_frame(const FrameHeader& header, std::uint64_t round, FrameBytes out) {
  const Layout layout{.magic = kMagic,
                      .kind = static_cast<std::uint8_t>(header.kind),
                      .zero = {},
                      .round = round,
                      .bytes = header.bytes,
                      .count = header.count,
                      .what = header.what,
                      .number = header.number,
                      .zero_at_end = {}};
  std::memcpy(out.data(), &layout, sizeof layout);
}

Result<FrameHeader> decode_frame(ConstFrameBytes bytes, std::uint64_t round) {
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  const auto none = [](std::uint8_t byte) { return byte == 0; };
  if (layout.magic != kMagic || !std::ranges::all_of(layout.zero, none) ||
      !std::ranges::all_of(layout.zero_at_end, none)) {
    return protocol_error("bytes that are no frame");
  }
  if (layout.round != round) {
    return protocol_error(
        fmt::format("a frame of round {}, this is round {}", layout.round, round));
  }
  const FrameHeader header{.kind = static_cast<FrameKind>(layout.kind),
                           .bytes = layout.bytes,
                           .count = layout.count,
                           .what = layout.what,
                           .number = layout.number};
  if (header.kind == FrameKind::collective) return header;
  if (header.kind == FrameKind::message) return checked_message(header);
  return protocol_error(fmt::format("a frame of unknown kind {}", layout.kind));
}

}  // namespace dlaunch
