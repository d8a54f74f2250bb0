// HostDiscovery runs the user's --host-discovery-script every second to list the present hosts: a
// command for the shell that prints lines as Horovod's does, "host:slots" or "host", or as in a
// hostfile (hostfile.h). A run that fails, takes longer than 5 s or lists nothing changes nothing;
// the problem is reported once. One thread, the loop's; nothing blocks.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>

#include "base/clock.h"
#include "launcher/plan/hostfile.h"
#include "launcher/process/command.h"
#include "launcher/wire/deadline_timer.h"

namespace dlaunch {

class HostDiscovery {
 public:
  using OnHosts = std::function<void(const std::vector<HostEntry>&)>;
  struct Times {
    Duration period = std::chrono::seconds(1);    // between an answer and the next run
    Duration patience = std::chrono::seconds(5);  // then a run is killed with its children
  };
  // helpers: has its process while it runs. on_hosts gets each list that differs from the last.
  HostDiscovery(asio::io_context& loop, std::string script, std::set<pid_t>& helpers,
                OnHosts on_hosts)
      : HostDiscovery(loop, std::move(script), helpers, std::move(on_hosts), Times()) {}
  HostDiscovery(asio::io_context& loop, std::string script, std::set<pid_t>& helpers,
                OnHosts on_hosts, const Times& times);
  // Starts the first run.
  void start() { ask(); }

 private:
  void ask();
  void judge(const Command::End& end);
  void complain(const std::string& why);
  void ask_later();

  const std::string script_;
  const OnHosts on_hosts_;
  const Times times_;
  Command command_;
  DeadlineTimer timer_;
  std::vector<HostEntry> last_;
  std::string told_;
};

}  // namespace dlaunch
