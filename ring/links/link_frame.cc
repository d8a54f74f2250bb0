#include "ring/links/link_frame.h"

#include "base/codec.h"
#include "ring/call/some_quorum.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLinkHeader = 1 + 1 + 2 + 4 + 8 + 8;
constexpr std::size_t kSignature = 8 + 4;
constexpr std::size_t kRoute = 4 + 4;
constexpr std::uint8_t kPassedOn = 128;

bool text_fits(LinkFrame::Type type, std::size_t text, int ranks) {
  switch (type) {
    case LinkFrame::Type::inside:
      return text == kSignature;
    case LinkFrame::Type::arrived:
      return text == kArrivalBytes;
    case LinkFrame::Type::decided:  // the channel may have fewer ranks than the connections
      return text % kGivenBytes == 0 && text <= kGivenBytes * static_cast<std::size_t>(ranks);
    default:
      return text <= kMaxLinkText;
  }
}

// A frame of this type has all its fields, and no others.
bool sound(const LinkFrame& frame, std::size_t text, int ranks) {
  if (frame.type < LinkFrame::Type::abort || frame.type > LinkFrame::Type::decided) return false;
  if (frame.code > kLastErrc || frame.rank < -1 || frame.rank >= ranks) return false;
  if (frame.number > 0 && (frame.origin < 0 || frame.origin >= ranks || frame.passes()))
    return false;
  return text_fits(frame.type, text, ranks);
}

}  // namespace

std::string encode(const LinkFrame& frame) {
  const bool inside = frame.type == LinkFrame::Type::inside;
  const std::size_t most = frame.type == LinkFrame::Type::decided ? 0xffff : kMaxLinkText;
  const auto text = inside ? std::string_view() : frame.text.substr(0, most);
  Writer out;
  out.put(static_cast<std::uint8_t>(static_cast<std::uint8_t>(frame.type) |
                                    (frame.number > 0 ? kPassedOn : 0)));
  out.put(static_cast<std::uint8_t>(frame.code));
  out.put(static_cast<std::uint16_t>(inside ? kSignature : text.size()));
  out.put(static_cast<std::int32_t>(frame.rank));
  out.put(frame.seq);
  out.put(frame.channel);
  if (frame.number > 0) {
    out.put(frame.origin);
    out.put(frame.number);
  }
  out.put_raw(text);
  if (inside) {
    out.put(frame.call.count);
    out.put(frame.call.packed);
  }
  return out.take();
}

void mark_lacking(std::string& encoded) { encoded[1] = static_cast<char>(kLacking); }

Result<std::optional<LinkFrame>> take_link_frame(std::string_view& bytes, int ranks) {
  if (bytes.size() < kLinkHeader) return std::optional<LinkFrame>();
  Reader in(bytes);
  LinkFrame frame;
  const auto type = in.get<std::uint8_t>();
  const bool passed_on = (type & kPassedOn) != 0;
  frame.type = static_cast<LinkFrame::Type>(type & ~kPassedOn);
  frame.code = static_cast<Errc>(in.get<std::uint8_t>());
  const std::size_t size = in.get<std::uint16_t>();
  frame.rank = in.get<std::int32_t>();
  frame.seq = in.get<std::uint64_t>();
  frame.channel = in.get<std::uint64_t>();
  const std::size_t route = passed_on ? kRoute : 0;
  if (in.left() < route) return std::optional<LinkFrame>();
  if (passed_on) {
    frame.origin = in.get<std::int32_t>();
    frame.number = in.get<std::uint32_t>();
  }
  if ((passed_on && frame.number == 0) || !sound(frame, size, ranks)) {
    return Error{.code = Errc::protocol, .what = "bytes that are no link frame"};
  }
  if (in.left() < size) return std::optional<LinkFrame>();
  if (frame.type == LinkFrame::Type::inside) {
    frame.call.count = in.get<std::uint64_t>();
    frame.call.packed = in.get<std::uint32_t>();
    frame.call.seq = static_cast<std::uint32_t>(frame.seq);
  } else {
    frame.text = in.get_raw(size);
  }
  bytes.remove_prefix(kLinkHeader + route + size);
  return std::optional(frame);
}

std::optional<Error> error_in_frames(std::string_view bytes, int ranks) {
  while (true) {
    const auto frame = take_link_frame(bytes, ranks);
    if (!frame || !*frame) return {};
    if ((*frame)->type != LinkFrame::Type::abort) continue;
    return Error{
        .code = (*frame)->code, .what = std::string((*frame)->text), .rank = (*frame)->rank};
  }
}

}  // namespace dlaunch
