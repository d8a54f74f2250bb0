// HealthCheck: a quick test whether this host can have workers. dlaunch's own test is a small job
// that this binary runs on this host alone (cli/doctor/host_test.h): memory, CPUs, room, GPUs, a
// collective. Then comes the user's program, --health-check. A test that hangs or crashes does so
// in another process, which is killed when its time is up. One thread, the loop's.
#pragma once

#include <functional>
#include <set>
#include <string>

#include <asio/io_context.hpp>

#include "launcher/plan/plan.h"
#include "launcher/process/command.h"

namespace dlaunch {

// The word on the command line of the dlaunch that runs the test; the numbers of workers and of
// GPUs follow.
inline constexpr const char* kHostTestWord = "host-test";

// Judges a host by the end of a test; "": it is healthy. name: of the test. Pure.
std::string why_unhealthy(const std::string& name, const Command::End& end, Duration limit);

class HealthCheck {
 public:
  // why: the host cannot have workers; "": it can.
  using Done = std::function<void(const std::string& why)>;
  // folder: for files of the test. helpers: gets its processes. `plan` must outlive it.
  HealthCheck(asio::io_context& loop, const Plan& plan, std::string folder,
              std::set<pid_t>& helpers, Done done);
  // Calls `done` once, perhaps at once.
  void start();

 private:
  void run(const std::string& name, const Command::Request& request,
           const std::function<void()>& next);
  Command::Request own_test() const;

  const Plan& plan_;
  const std::string folder_;
  const Done done_;
  Command command_;
};

}  // namespace dlaunch
