// Command: runs a program for dlaunch itself, not one of the job's, to its end or until its time is
// up. The program leads a process group of its own and has no input; up to 1 MiB of its output is
// kept. One thread, the loop's; nothing blocks.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

class Command {
 public:
  struct Request {
    std::vector<std::string> argv;  // argv[0] is also the program's path
    std::vector<std::string> env;   // "K=V"
    bool keep_errors = false;       // keep stderr like stdout; else it goes to ours
    Duration limit;
  };
  struct End {
    std::string text;       // its output
    int status = 0;         // its exit code, or the signal as a negative number
    bool too_late = false;  // it was killed at the limit
  };
  // helpers: has its process while it runs.
  Command(asio::io_context& loop, std::set<pid_t>& helpers) : loop_(loop), helpers_(helpers) {}
  // Kills a running program without calling `done`.
  ~Command() { stop(); }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // done: called once, later. Error: the program cannot be started. Do not call it while another
  // one runs.
  Result<void> run(const Request& request, std::function<void(const End&)> done);
  // The process of the last run is still there, perhaps beyond its limit: SIGKILL has not ended it.
  bool runs() const;

 private:
  struct Run;
  void stop();

  asio::io_context& loop_;
  std::set<pid_t>& helpers_;
  std::shared_ptr<Run> run_;
};

// Runs it and waits for its end; for use without a loop.
Result<Command::End> run_command(const Command::Request& request);

// Our own environment, as "K=V".
std::vector<std::string> own_environment();

// The command for the shell, with our environment.
Command::Request shell_command(const std::string& line, Duration limit);

// "ended with exit code 3", "was ended by SIGKILL", "took longer than 30 s"; "": it ended well.
std::string describe(const Command::End& end, Duration limit);

}  // namespace dlaunch
