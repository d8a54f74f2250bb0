// The soft limit of open files, which a program need not know of: the library raises it as far as
// the hard one allows before it opens many.
#pragma once

#include <cstddef>

namespace dlaunch {

// Makes room for `more` descriptors, and for some of the program's own. Where the hard limit is too
// low for that, whoever opens them hears it from the kernel. Thread-safe.
void allow_descriptors(std::size_t more);

}  // namespace dlaunch
