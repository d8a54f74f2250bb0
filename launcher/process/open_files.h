// Whether the limit of open files leaves room for the workers of this host.
#pragma once

#include "base/result.h"

namespace dlaunch {

// By the soft limit as it is now: eight descriptors for each worker, two for each port that is held
// for one, and those of dlaunch itself. Error (EMFILE): how many are needed, and what to do.
Result<void> check_open_files(int workers, int ports = 0);

}  // namespace dlaunch
