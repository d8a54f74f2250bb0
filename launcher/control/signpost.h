// Signpost: what dlaunchctl finds on a host whose job is led from another one: a socket in the
// job's folder that answers whatever is asked by where to ask. One thread, the loop's.
#pragma once

#include <memory>
#include <string>

#include "launcher/control/control_server.h"

namespace dlaunch {

class Signpost {
 public:
  // Error: the socket cannot be made.
  static Result<std::unique_ptr<Signpost>> open(asio::io_context& loop, const std::string& folder,
                                                const std::string& job_id,
                                                const std::string& leader);

 private:
  explicit Signpost(std::unique_ptr<ControlServer> server) : server_(std::move(server)) {}

  std::unique_ptr<ControlServer> server_;
};

}  // namespace dlaunch
