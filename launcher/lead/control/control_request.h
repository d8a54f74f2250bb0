// Requests of dlaunchctl to a running job, and the decisions on them. Pure: decide() judges a
// request against the job's status; JobControl carries the decision out.
// A request is one JSON object: {"command": "status"}, "top", "stop", "goodput", "stacks" (with
// "rank": only of that rank), "resize" with "size", "restart" with "rank", "drain" and "undrain"
// with "host", "events" and, with "rank", "tail" (with "after", an earlier answer's "next": the
// newer ones, which may not be there yet). decide() refuses a request with any other member.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "elastic/job_core.h"
#include "launcher/lead/control/job_status.h"

namespace dlaunch {

inline constexpr const char* kControlSocket = "control";  // its name in the job's folder
inline constexpr std::size_t kMaxControlRequest = 4096;

struct ControlRequest {
  enum class Command {
    status,
    resize,
    restart,
    stacks,
    stop,
    top,
    drain,
    undrain,
    goodput,
    events,
    tail
  };
  Command command = Command::status;
  // resize: workers; restart, tail: a rank; stacks: a rank, or none for all
  std::optional<int> number;
  std::string host = {};                    // drain, undrain
  std::optional<std::uint64_t> after = {};  // events, tail
};

Result<ControlRequest> parse_control_request(std::string_view text);
std::string encode(const ControlRequest& request);

struct ControlDecision {
  std::string refused = {};                  // why the request is refused; "": it is carried out
  std::optional<JobCore::Event> event = {};  // for the job
  std::string done = {};                     // the result, in words
  std::optional<HostStatus> drain = {};      // drain this host; if it is drained, undrain it
  std::vector<WorkerStatus> stacks_of = {};  // print the stacks of these
};

// "there is no rank 9: the job has 4 workers, counted from 0"
std::string no_such_rank(int rank, int size);

ControlDecision decide(const ControlRequest& request, const JobStatus& job);

// The answer of a dlaunch that follows: it names the leader's host, and how to reach the leader.
struct Referral {
  std::string job_id;
  std::string host;    // the leader's
  std::string leader;  // host:port
  bool tls = false;    // the job encrypts its connections
};
std::string refer_to(const Referral& referral);

}  // namespace dlaunch
