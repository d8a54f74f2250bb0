// Our own stdin, stdout and stderr: descriptors shared with the shell and its other programs. We
// must not change their flags.
#pragma once

#include "base/unique_fd.h"

namespace dlaunch {

// Reopens a pipe or terminal, non-blocking, with flags of its own. `access` is O_RDONLY or
// O_WRONLY. Empty if that is not possible: sockets, a terminal of another user, no /proc.
UniqueFd open_anew(int fd, int access);

// Becomes readable when `fd`, which it does not own, can be read or written, by `access`. asio
// makes the descriptors that it waits for non-blocking for every process that shares the open file:
// let it wait for this instead of a descriptor that we share. Empty if `fd` cannot be waited for,
// such as /dev/null.
UniqueFd watch_of(int fd, int access);

// Whether both descriptors lead to the same file, pipe or terminal.
bool same_target(int a, int b);

}  // namespace dlaunch
