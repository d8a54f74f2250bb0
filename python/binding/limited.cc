#include "python/binding/limited.h"

#include <dlfcn.h>

namespace dlaunch::python {
namespace {

BufferFunctions g_buffers;

template <class Function>
bool look_up(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  if (function != nullptr) return true;
  PyErr_Format(PyExc_ImportError, "dlaunch: this Python has no %s: use CPython 3.9 or newer", name);
  return false;
}

}  // namespace

const BufferFunctions& buffers() { return g_buffers; }

bool find_buffer_functions() {
  return look_up("PyObject_CheckBuffer", g_buffers.check) &&
         look_up("PyObject_GetBuffer", g_buffers.get) &&
         look_up("PyBuffer_Release", g_buffers.release);
}

}  // namespace dlaunch::python
