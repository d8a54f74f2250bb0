#include "ring/stream/stream_errors.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace dlaunch {

std::string activity_of(const Call& step) {
  const Call& call = users_call(step);
  return fmt::format("{} #{}", call_name(call), call.seq);
}

std::string activity_of(const Message& message) {
  if (message.peer == kAnySource) return fmt::format("recv from any rank (tag {})", message.tag);
  if (is_library_tag(message.tag)) {
    return fmt::format("all_reduce_some: {} rank {}", message.is_send ? "send to" : "recv from",
                       message.peer);
  }
  return fmt::format("{} rank {} (tag {})", message.is_send ? "send to" : "recv from", message.peer,
                     message.tag);
}

Error connection_failed(int peer, std::string_view activity, int os_errno) {
  if (os_errno == EFAULT || os_errno == ENOMEM || os_errno == ENOBUFS) {  // not the peer's fault
    return {.code = Errc::io,
            .what = fmt::format(
                "{}: {}: {}", activity,
                os_errno == EFAULT ? "a buffer is no valid memory" : "a host lacks memory",
                std::strerror(os_errno)),
            .os_errno = os_errno};
  }
  std::string what = fmt::format("rank {} closed its connection during {}", peer, activity);
  if (os_errno != 0 && os_errno != EPIPE) what += fmt::format(" ({})", std::strerror(os_errno));
  return {.code = Errc::peer_lost, .what = std::move(what), .os_errno = os_errno, .rank = peer};
}

Error bad_frame(int peer, std::string_view what) {
  return {.code = Errc::protocol, .what = fmt::format("rank {} sent {}", peer, what), .rank = peer};
}

Error wrong_length(int peer, std::string_view activity, std::size_t sent, std::size_t expected) {
  return bad_frame(
      peer, fmt::format("{} bytes during {} where {} were expected", sent, activity, expected));
}

Error call_mismatch(int rank, const CallSignature& mine, int peer, const CallSignature& theirs) {
  Error error = mismatch_error(rank, mine, peer, theirs);
  if (theirs.seq != mine.seq) error.what += fmt::format(" (its collective #{})", theirs.seq);
  return error;
}

Error message_mismatch(int rank, const Message& wanted, const FrameHeader& sent) {
  return {.code = Errc::mismatch,
          .what = fmt::format(
              "message with tag {}: rank {} sent count {}, {}; rank {} receives count {}, {}",
              wanted.tag, wanted.source, sent.count, dtype_name(sent.message_dtype()), rank,
              wanted.count, dtype_name(wanted.dtype)),
          .rank = wanted.source};
}

std::string describe(const RollCall& roll) {
  std::string text;
  if (!roll.silent.empty()) text = format_rank_set(roll.silent) + " (no answer)";
  if (!roll.outside.empty()) {
    text += (text.empty() ? "" : ", ") + format_rank_set(roll.outside) + " (not in this call)";
  }
  if (!text.empty() || roll.behind.empty()) return text;
  return format_rank_set(roll.behind) + " (in an earlier call)";
}

std::optional<Error> timed_out_by_roll(const RollCall& roll, const Call& call, Duration waited,
                                       int ranks) {
  const std::string blamed = describe(roll);
  if (blamed.empty()) return std::nullopt;
  RankSet arrived;
  for (int r = 0; r < ranks; ++r) arrived.insert(r);
  for (const auto* away : {&roll.silent, &roll.outside, &roll.behind}) {
    for (const int r : *away) arrived.erase(r);
  }
  Error error = op_timeout_error(call, waited, blamed, format_rank_set(arrived));
  for (const auto* away : {&roll.silent, &roll.outside, &roll.behind}) {
    if (error.rank < 0 && !away->empty()) error.rank = *away->begin();
  }
  return error;
}

Error inbox_full(int peer, std::string_view activity, const FrameHeader& message) {
  return {.code = Errc::io,
          .what = fmt::format("{}: a message of {} bytes from rank {} (tag {}) comes first, and "
                              "its buffer has no room beside other unreceived messages",
                              activity, message.bytes, peer, message.message_tag()),
          .rank = peer};
}

}  // namespace dlaunch
