#include "launcher/process/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace dlaunch {

Result<Terminal> Terminal::open() {
  UniqueFd fd(::open("/dev/tty", O_RDWR | O_CLOEXEC));
  if (!fd) return errno_error("open /dev/tty", errno);
  termios settings{};
  if (::tcgetattr(fd.get(), &settings) != 0) return errno_error("read the terminal's modes", errno);
  const pid_t owner = ::tcgetpgrp(fd.get());
  return Terminal(std::move(fd), owner, settings);
}

// The agent ignores SIGTTOU, which these calls would else send it from the background.
void Terminal::give(pid_t group) {
  ::tcsetpgrp(fd_.get(), group);
  ::kill(-group, SIGCONT);
}

void Terminal::take_back() {
  ::tcsetpgrp(fd_.get(), owner_);
  ::tcsetattr(fd_.get(), TCSADRAIN, &settings_);
}

}  // namespace dlaunch
