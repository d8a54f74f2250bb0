// LinkMessage: what two ranks exchange over their control link while they meet, before the control
// thread owns it: whether this side could do its part, descriptors if both are on one host, and the
// CPUs that it may run on. On the wire: u8 answer, u8 error code, u16 text length, i32 rank, u16
// length of the set of CPUs, i32 cores, u32 length of the facts, text, set, facts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

struct LinkMessage {
  enum class Answer : std::uint8_t {
    yes = 1,
    no = 2,      // not possible here, see `error.what`; the ranks do without
    failed = 3,  // this rank gives up because of `error`
  };
  Answer answer = Answer::yes;
  Error error;
  std::string cpus{};           // see base/cpus.h
  std::int32_t cores = 0;       // cores that its host's ranks share, from the launcher; 0: unknown
  std::string facts{};          // of ranks, see ring/links/rank_facts.h
  std::vector<UniqueFd> fds{};  // in a received message
};

inline constexpr std::size_t kMaxPassedFds = 4;

// What two ranks say, together: the first answer that is worse than the other's, the CPUs and facts
// of both, and the fewer cores, as far as they are known.
LinkMessage joined(LinkMessage one, LinkMessage other);

// Passes `fds` along, by AF_UNIX links only; the caller keeps its own.
Result<void> send_link_message(int link, const LinkMessage& message, const std::vector<int>& fds,
                               TimePoint deadline);
// Whether the next message that has come is Answer::failed.
bool says_failed(int link);
// Errc::peer_lost if the peer ended; the caller names the rank. Fewer descriptors than were sent:
// this process has no room for more.
Result<LinkMessage> receive_link_message(int link, TimePoint deadline);

}  // namespace dlaunch
