// Errors of libdlring as the exceptions of dlaunch._errors.
#pragma once

#include <dlaunch/ring.h>

#include "python/binding/limited.h"

namespace dlaunch::python {

// Loads them. False: sets an exception.
bool load_errors();

// Raises the exception for this result. text: its readable sentence. lost: the rank that PeerLost
// names, or -1. Returns null.
PyObject* raise_error(dl_result result, const char* text, int lost);
// Raises the error of the calling thread's last call on comm (null: dl_init).
PyObject* raise_last(dl_result result, const dl_comm* comm);
// Raises dlaunch.Error itself, for errors outside the library.
PyObject* raise_closed(const char* text);

}  // namespace dlaunch::python
