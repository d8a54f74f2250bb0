// OutputLink: the connections by which a dlaunch that another host than the leader's has started
// sends its output to the leader. Its life hangs on them, and not on the host that has started it:
// the leader writes nothing on them, and ends the dlaunch by closing its direction of the first.
// Only the handshake is ours; then each carries the bytes of a stream. They are encrypted if the
// secret says so (--tls).
#pragma once

#include <cstdint>
#include <string>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/secret.h"
#include "base/unique_fd.h"

namespace dlaunch {

// How the handshake numbers the two streams.
inline constexpr std::int32_t kOutputStream = 0, kErrorStream = 1;

struct OutputLink {
  UniqueFd out, err;  // blocking
};

// Blocks for ten seconds at most, and while the leader's name is resolved. login: the leader's
// number of the start (ssh_talk.h).
Result<OutputLink> open_output_link(const Endpoint& leader, const Secret& secret,
                                    const std::string& job_id, std::int32_t login,
                                    const std::string& who);

}  // namespace dlaunch
