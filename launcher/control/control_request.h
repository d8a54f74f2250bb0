// What dlaunchctl asks a running job, and what the job makes of it. Pure: decide() judges a request
// against the job's status; JobControl does what it says.
//
// A request is one JSON object: {"command": "status"}, "top", "stop", "stacks" (with "rank": of one
// only), "resize" with "size", "restart" with "rank", "drain" and "undrain" with "host". Anything
// else in it is refused.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "elastic/job_core.h"
#include "launcher/control/job_status.h"

namespace dlaunch {

inline constexpr const char* kControlSocket = "control";  // its name in the job's folder
inline constexpr std::size_t kMaxControlRequest = 4096;

struct ControlRequest {
  enum class Command { status, resize, restart, stacks, stop, top, drain, undrain };
  Command command = Command::status;
  std::optional<int> number;  // resize: workers; restart: a rank; stacks: a rank, or of all
  std::string host = {};      // drain, undrain
};

Result<ControlRequest> parse_control_request(std::string_view text);
std::string encode(const ControlRequest& request);

struct ControlDecision {
  std::string refused;                  // why nothing is done; "": it is done
  std::optional<JobCore::Event> event;  // for the job
  std::string done;                     // what comes of it, in words
  std::optional<HostStatus> drain;      // this host, or, where it is drained, not any more
  std::vector<WorkerStatus> stacks_of;  // of whom
};

ControlDecision decide(const ControlRequest& request, const JobStatus& job);

// The answer of a dlaunch that follows: who leads, and that it is to be asked.
std::string refer_to(const std::string& job_id, const std::string& leader);

}  // namespace dlaunch
