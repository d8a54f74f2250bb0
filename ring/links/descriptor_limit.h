// The soft limit of open files: the library raises it as far as the hard one allows before it opens
// many, so programs need not.
#pragma once

#include <cstddef>

namespace dlaunch {

// Makes room for `more` descriptors, and for some of the program's own. If the hard limit is too
// low, a later open fails with the kernel's error. Thread-safe.
void allow_descriptors(std::size_t more);

}  // namespace dlaunch
