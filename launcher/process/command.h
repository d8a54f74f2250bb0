// Command: a program that dlaunch runs for itself, not one of the job's: to its end, or until its
// time is up. It leads a process group of its own and reads nothing; what it prints is kept, up to
// 1 MiB. One thread, the loop's; nothing blocks.
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
    std::vector<std::string> argv;  // the first is the program's path, too
    std::vector<std::string> env;   // "K=V"
    bool keep_errors = false;       // its stderr is kept like its stdout; else it is ours
    Duration limit;
  };
  struct End {
    std::string text;       // that it printed
    int status = 0;         // its exit code, or the signal as a negative number
    bool too_late = false;  // and killed
  };
  // helpers: has its process while there is one.
  Command(asio::io_context& loop, std::set<pid_t>& helpers) : loop_(loop), helpers_(helpers) {}
  // Kills what runs; nobody is told.
  ~Command() { stop(); }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // done: once, later. An error: it cannot be started. Not while another one runs.
  Result<void> run(const Request& request, std::function<void(const End&)> done);

 private:
  struct Run;
  void stop();

  asio::io_context& loop_;
  std::set<pid_t>& helpers_;
  std::shared_ptr<Run> run_;
};

// Runs it and waits for its end, where nothing else goes on meanwhile.
Result<Command::End> run_command(const Command::Request& request);

// Our own environment, as a program is given it.
std::vector<std::string> own_environment();

// The command for the shell, with our environment.
Command::Request shell_command(const std::string& line, Duration limit);

// "ended with exit code 3", "was ended by SIGKILL", "took longer than 30 s"; "": it ended well.
std::string describe(const Command::End& end, Duration limit);

}  // namespace dlaunch
