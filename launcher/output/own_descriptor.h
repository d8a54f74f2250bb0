// Our own stdin, stdout and stderr: descriptors shared with the shell and its other programs, whose
// flags we must not change.
#pragma once

#include "base/unique_fd.h"

namespace dlaunch {

// A pipe or terminal opened anew, non-blocking, with flags of its own. `access` is O_RDONLY or
// O_WRONLY. Empty where that is not possible: sockets, a terminal of another user, no /proc.
UniqueFd open_anew(int fd, int access);

// Becomes readable when `fd`, which it does not own, can be read or written, by `access`. asio
// makes what it waits for non-blocking, for everybody who has the same open file: let it wait for
// this in place of a descriptor that we share. Empty where `fd` cannot be waited for, such as
// /dev/null.
UniqueFd watch_of(int fd, int access);

// Do both descriptors lead to the same file, pipe or terminal?
bool same_target(int a, int b);

}  // namespace dlaunch
