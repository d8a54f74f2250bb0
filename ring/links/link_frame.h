// LinkFrame: the messages of ranks on their control links after they have met. Pure. Several
// communicators share these links; each has a channel there, and a frame belongs to one channel.
// Ranks are those of the channel's communicator.
//
// On the wire: u8 type, u8 error code, u16 text length, i32 rank, u64 seq, u64 channel, text. In a
// channel whose ranks have few links, a frame for all goes from neighbour to neighbour: its type
// has 128 added, and before the text come i32 origin, the rank that began it, and u32 number.
//   ABORT    the communicator is over: code and rank at fault, in the words of the first finder
//   GOODBYE  this rank leaves in good order after its collective `seq`
//   WHERE    the sender has waited too long in its collective `seq`: where are you?
//   HERE     the answer: the last collective that this rank has entered is `seq`; `rank` is its own
//            while it is in there, -1 afterwards
//   INSIDE   the sender is in its collective `seq`; instead of text its call there: u64
//            count, u32 the rest
//   JOIN     the sender is in the bootstrap of the channel's group; with Errc::unsupported as its
//            code: the group cannot meet here, and the text says why
//   PASS     one descriptor comes with the frame; the low byte of `seq` is its purpose, the rest
//            its number. With Errc::io as its code none comes: the sender could not get it
//   WANT     the sender needs sockets to the receiver. On one host the receiver makes one for
//            messages and passes it; otherwise it connects: `seq` is PairSockets::Use
//   MEMORY   one descriptor comes with the frame, or none, as with PASS: that of memory of the
//            sender for all channels; `seq` says which (see ring/shm/host_memory.h)
//   ARRIVED  to rank 0: the sender is in its all_reduce_some `seq`; the text is a SomeArrival
//   DECIDED  from rank 0: whose contributions are in all_reduce_some `seq`; the text is SomeGiven
//            (ring/call/some_quorum.h has both)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ring/call/plane.h"

namespace dlaunch {

// The channel of the communicator that made the links.
inline constexpr std::uint64_t kFirstChannel = 0;
// The code of a frame whose descriptor the sender could not get.
inline constexpr Errc kLacking = Errc::io;

struct LinkFrame {
  enum class Type : std::uint8_t {
    abort = 1,
    goodbye = 2,
    where = 3,
    here = 4,
    inside = 5,
    join = 6,
    pass = 7,
    want = 8,
    memory = 9,
    arrived = 10,
    decided = 11
  };
  Type type = Type::abort;
  Errc code = Errc::aborted;
  int rank = -1;  // -1: no rank
  std::uint64_t seq = 0;
  std::string_view text;
  CallSignature call = {};  // for INSIDE
  std::uint64_t channel = kFirstChannel;
  // For all ranks of the channel, by way of others: the rank that began it, and the frame's place
  // among those that this rank began, from 1. 0: the frame is for the receiver alone.
  std::int32_t origin = -1;
  std::uint32_t number = 0;
  // A descriptor of the sender comes with the frame, unless the code is kLacking.
  bool passes() const { return type == Type::pass || type == Type::memory; }
  bool carries_descriptor() const { return passes() && code != kLacking; }
};

// What a PASS is for.
enum class Passed : std::uint8_t {
  segment = 1,   // the control segment of a group that meets
  messages = 2,  // the receiver's end of a socket for messages
  region = 3,    // memory of dl_alloc()
};

inline constexpr std::size_t kMaxLinkText = 1000;

// Text is cut to kMaxLinkText, but for that of a DECIDED.
std::string encode(const LinkFrame& frame);
// Makes the code of an encoded frame kLacking.
void mark_lacking(std::string& encoded);
// Takes the first frame off `bytes`; its text points into them. nullopt: more bytes are needed.
// Errc::protocol: not a frame of a rank below `ranks`.
Result<std::optional<LinkFrame>> take_link_frame(std::string_view& bytes, int ranks);
// The error of the first ABORT among these frames. none: there is no ABORT.
std::optional<Error> error_in_frames(std::string_view bytes, int ranks);

}  // namespace dlaunch
