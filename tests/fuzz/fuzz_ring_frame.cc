#include <cstring>

#include "fuzz.h"
#include "ring/stream/frame.h"

static int fuzz_ring_frame(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;
  if (size < kFrameHeaderBytes) return -1;
  const auto bytes = std::as_bytes(std::span(data, kFrameHeaderBytes)).first<kFrameHeaderBytes>();
  const auto header = decode_frame(bytes, 1);
  if (!header) return -1;
  // What is accepted is written again in the same bytes.
  std::byte again[kFrameHeaderBytes];
  encode_frame(*header, 1, again);
  if (std::memcmp(again, bytes.data(), kFrameHeaderBytes) != 0) __builtin_trap();
  return 0;
}

static const FuzzTarget ring_frame_target("ring_frame", fuzz_ring_frame);
