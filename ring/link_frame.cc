#include "ring/link_frame.h"

#include "base/codec.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLinkHeader = 1 + 1 + 2 + 4 + 8;

}  // namespace

std::string encode(const LinkFrame& frame) {
  const auto text = frame.text.substr(0, kMaxLinkText);
  Writer out;
  out.put(static_cast<std::uint8_t>(frame.type));
  out.put(static_cast<std::uint8_t>(frame.code));
  out.put(static_cast<std::uint16_t>(text.size()));
  out.put(static_cast<std::int32_t>(frame.rank));
  out.put(frame.seq);
  out.put_raw(text);
  return out.take();
}

Result<std::optional<LinkFrame>> take_link_frame(std::string_view& bytes, int ranks) {
  if (bytes.size() < kLinkHeader) return std::optional<LinkFrame>();
  Reader in(bytes);
  LinkFrame frame;
  frame.type = static_cast<LinkFrame::Type>(in.get<std::uint8_t>());
  frame.code = static_cast<Errc>(in.get<std::uint8_t>());
  const std::size_t size = in.get<std::uint16_t>();
  frame.rank = in.get<std::int32_t>();
  frame.seq = in.get<std::uint64_t>();
  const bool sound = frame.type >= LinkFrame::Type::abort && frame.type <= LinkFrame::Type::here &&
                     frame.code <= Errc::unsupported && size <= kMaxLinkText && frame.rank >= -1 &&
                     frame.rank < ranks;
  if (!sound) return Error{.code = Errc::protocol, .what = "bytes that are no link frame"};
  if (in.left() < size) return std::optional<LinkFrame>();
  frame.text = in.get_raw(size);
  bytes.remove_prefix(kLinkHeader + size);
  return std::optional(frame);
}

}  // namespace dlaunch
