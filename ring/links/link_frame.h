// LinkFrame: what ranks say on their control links once they have met. Pure.
//
// On the wire: u8 type, u8 error code, u16 text length, i32 rank, u64 seq, text.
//   ABORT    the communicator is over: code and rank at fault, in the words of who noticed first
//   GOODBYE  this rank leaves in good order after its collective `seq`
//   WHERE    the sender has waited too long in its collective `seq`: where are you?
//   HERE     the answer: the last collective that this rank has entered is `seq`; `rank` is its own
//            while it is in there, -1 afterwards
//   INSIDE   the sender is in its collective `seq`; in place of text, what it has called there: u64
//            count, u32 the rest
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ring/call/plane.h"

namespace dlaunch {

struct LinkFrame {
  enum class Type : std::uint8_t { abort = 1, goodbye = 2, where = 3, here = 4, inside = 5 };
  Type type = Type::abort;
  Errc code = Errc::aborted;
  int rank = -1;  // -1: no rank
  std::uint64_t seq = 0;
  std::string_view text;
  CallSignature call = {};  // of INSIDE
};

inline constexpr std::size_t kMaxLinkText = 1000;

// Text is cut to kMaxLinkText.
std::string encode(const LinkFrame& frame);
// The frame that `bytes` begin with and takes it off them; its text lies in them. nullopt: more
// bytes are needed. Errc::protocol: no frame, of no rank of `ranks`.
Result<std::optional<LinkFrame>> take_link_frame(std::string_view& bytes, int ranks);

}  // namespace dlaunch
