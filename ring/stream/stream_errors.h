// The errors of the stream plane: code, rank and sentence of each. Pure. `activity` is what this
// rank was doing: "all_reduce #17", "recv from rank 2 (tag 5)".
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ring/call/operation.h"
#include "ring/call/plane.h"
#include "ring/call/roll_call.h"
#include "ring/stream/frame.h"

namespace dlaunch {

std::string activity_of(const Call& call);
std::string activity_of(const Message& message);

// The peer's loss, or Errc::io if os_errno says that the peer is not at fault. 0: the peer closed
// in good order.
Error connection_failed(int peer, std::string_view activity, int os_errno);
Error bad_frame(int peer, std::string_view what);
Error wrong_length(int peer, std::string_view activity, std::size_t sent, std::size_t expected);
// Two ranks' signatures differ, perhaps only in the number of the collective.
Error call_mismatch(int rank, const CallSignature& mine, int peer, const CallSignature& theirs);
Error message_mismatch(int rank, const Message& wanted, const FrameHeader& sent);
// The ranks that a time-out blames: "2 (no answer), 4-5 (not in this call)". Ranks that are behind
// only if there are no others; "" if all are in the call.
std::string describe(const RollCall& roll);
// The error of a call whose time is up, by the roll of its `ranks`; none if all are in the call and
// answer: then only the call's data can show which rank stands still.
std::optional<Error> timed_out_by_roll(const RollCall& roll, const Call& call, Duration waited,
                                       int ranks);
Error inbox_full(int peer, std::string_view activity, const FrameHeader& message);

}  // namespace dlaunch
