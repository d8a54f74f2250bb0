// WorkerMessage: the messages between a linked worker and the agent of its node, over an AF_UNIX
// socket of whole packets in the job's private folder. Only the user can open that folder.
//
// A worker sends Ready when it wants to be in a round; the agent answers with RoundNotice once the
// round has formed, however long that takes. FenceNotice may come at any time. A live worker whose
// end of the socket closes without a Goodbye can join no further round.
//
// A packet: u8 kind, then the fields in order; strings with a u32 length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace dlaunch {

struct Ready {
  std::int32_t worker = 0;    // DLAUNCH_WORKER
  std::int32_t left = 0;      // the round it was in; 0: none
  std::uint64_t version = 0;  // the newest state it holds; 0: none
  std::string why;  // why it gave up round `left`; "": a rank was lost, or the agent asked
};

// A round, and this worker's place in it.
struct RoundNotice {
  std::int32_t round = 0;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::int32_t local_cores = 0;  // of the node, for its members together; 0: unknown
  std::string store_url;
  std::string round_dir;
};

// Every round before `round` is over.
struct FenceNotice {
  std::int32_t round = 0;
  std::int32_t lost = -1;  // the rank that is the reason; -1: none
};

// From the worker, now and then: the newest state it holds.
struct ProgressNotice {
  std::int32_t worker = 0;
  std::uint64_t version = 0;
};

// The worker's last message: it has left all rounds and wants no other.
struct Goodbye {
  std::int32_t worker = 0;
};

using WorkerMessage = std::variant<Ready, RoundNotice, FenceNotice, ProgressNotice, Goodbye>;

inline constexpr std::size_t kMaxWorkerMessage = 16 << 10;
inline constexpr const char* kAgentSocket = "agent";  // its name in the job's folder

std::string encode(const WorkerMessage& message);
Result<WorkerMessage> decode_worker_message(std::string_view packet);

}  // namespace dlaunch
