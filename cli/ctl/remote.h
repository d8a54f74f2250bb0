// A request to a job that another machine leads: over the port of the job's store, to which only
// holders of the job's secret have access.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/secret.h"
#include "launcher/lead/control/control_request.h"

namespace dlaunch::ctl {

struct RemoteJob {
  std::vector<Endpoint> leaders;  // the job's leader is at one of them
  std::string election;           // or this place says where, an URL as of --rdzv; "": none does
  std::string job_id;
  Secret secret;  // with --tls, if the job has it
};

// "HOST:PORT,HOST:PORT…", or where hosts elect their leader: "file:///FOLDER", "etcd://HOST:PORT…".
Result<RemoteJob> parse_leader(std::string_view text);

// The answer. An error: the leader cannot be reached, does not accept us, has gone, or has not
// answered by then.
Result<std::string> exchange_remotely(const RemoteJob& job, const ControlRequest& request,
                                      TimePoint deadline);

}  // namespace dlaunch::ctl
