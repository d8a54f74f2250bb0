// Errors of libdlring as the exceptions of dlaunch._errors.
#pragma once

#include <dlaunch/ring.h>

#include "python/binding/limited.h"

namespace dlaunch::python {

// Loads them; false, with an exception.
bool load_errors();

// The exception of this result. text: the sentence for people. lost: the rank that PeerLost names,
// or -1. Returns null.
PyObject* raise_error(dl_result result, const char* text, int lost);
// What the calling thread's last call on comm (null: dl_init) failed for.
PyObject* raise_last(dl_result result, const dl_comm* comm);
// dlaunch.Error itself, for what does not come from the library.
PyObject* raise_closed(const char* text);

}  // namespace dlaunch::python
