// What the stream plane says when a call fails: each error's code, rank and sentence. Pure.
// `activity` is what this rank was doing: "all_reduce #17", "recv from rank 2 (tag 5)".
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

// The peer's loss, unless os_errno says that it was no fault of its: then Errc::io. 0: the peer
// closed in good order.
Error connection_failed(int peer, std::string_view activity, int os_errno);
Error bad_frame(int peer, std::string_view what);
Error wrong_length(int peer, std::string_view activity, std::size_t sent, std::size_t expected);
// Two ranks' signatures differ, perhaps only in the number of the collective.
Error call_mismatch(int rank, const CallSignature& mine, int peer, const CallSignature& theirs);
Error message_mismatch(int rank, const Message& wanted, const FrameHeader& sent);
// Whom a time-out blames: "2 (no answer), 4-5 (not in this call)". Ranks that are behind only where
// there is nobody else; "" where all are in the call.
std::string describe(const RollCall& roll);
// The error of a call whose time is up, by the roll of its `ranks`; none where all are in the call
// and answer: then only what its data shows can tell who stands still.
std::optional<Error> timed_out_by_roll(const RollCall& roll, const Call& call, Duration waited,
                                       int ranks);
Error inbox_full(int peer, std::string_view activity, const FrameHeader& message);

}  // namespace dlaunch
