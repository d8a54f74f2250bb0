// Redirect: on a host that does not lead the job, a socket in the job's folder that answers each
// request of dlaunchctl with the leader's host and address. One thread, the loop's.
#pragma once

#include <memory>
#include <string>

#include "launcher/lead/control/control_request.h"
#include "launcher/lead/control/control_server.h"

namespace dlaunch {

class Redirect {
 public:
  // Error: the socket cannot be made.
  static Result<std::unique_ptr<Redirect>> open(asio::io_context& loop, const std::string& folder,
                                                const Referral& referral);

 private:
  explicit Redirect(std::unique_ptr<ControlServer> server) : server_(std::move(server)) {}

  std::unique_ptr<ControlServer> server_;
};

}  // namespace dlaunch
