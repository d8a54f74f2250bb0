// The user's terminal, which dlaunch gives to one process group at a time, as a shell does with its
// jobs.
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class Terminal {
 public:
  // Error: this process has no terminal.
  static Result<Terminal> open();

  // The group is in the foreground: it reads what the user types, and ^C goes to it. A group that
  // has stopped because it was not continues.
  void give(pid_t group);
  // The group that had it at open() has it again, with the settings of then.
  void take_back();

 private:
  Terminal(UniqueFd fd, pid_t owner, const termios& settings)
      : fd_(std::move(fd)), owner_(owner), settings_(settings) {}

  UniqueFd fd_;
  pid_t owner_;
  termios settings_;
};

}  // namespace dlaunch
