// HostDiscovery asks the user's --host-discovery-script, every second, which hosts there are: a
// command for the shell that prints lines as Horovod's does, "host:slots" or "host", or as any
// hostfile has them (hostfile.h). One that fails, takes longer than 5 s or lists nothing changes
// nothing; what was wrong is told once. One thread, the loop's; nothing blocks.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/hostfile.h"

namespace dlaunch {

class HostDiscovery {
 public:
  using Listener = std::function<void(const std::vector<HostEntry>&)>;
  struct Times {
    Duration period = std::chrono::seconds(1);    // between an answer and the next question
    Duration patience = std::chrono::seconds(5);  // with it; then it is killed with its children
  };
  // helpers: has its process while it runs. The listener gets a list whenever it is another one.
  HostDiscovery(asio::io_context& loop, std::string script, std::set<pid_t>& helpers,
                Listener listener)
      : HostDiscovery(loop, std::move(script), helpers, std::move(listener), Times()) {}
  HostDiscovery(asio::io_context& loop, std::string script, std::set<pid_t>& helpers,
                Listener listener, const Times& times);
  ~HostDiscovery();
  // Asks for the first time.
  void start() { ask(); }

 private:
  void ask();
  Result<void> run();
  void read();
  void watch();
  void limit();
  void end_script();
  void check_over();
  void judge();
  void complain(const std::string& why);
  void ask_later();

  asio::io_context& loop_;
  const std::string script_;
  std::set<pid_t>& helpers_;
  const Listener listener_;
  const Times times_;
  asio::posix::stream_descriptor output_, exited_;
  asio::steady_timer timer_;
  pid_t pid_ = -1;  // while it runs
  int status_ = 0;  // its exit code, or the signal as a negative number
  bool too_late_ = false;
  std::string text_;
  std::vector<HostEntry> last_;
  std::string told_;
};

}  // namespace dlaunch
