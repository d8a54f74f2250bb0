#include "python/binding/errors.h"

namespace dlaunch::python {
namespace {

PyObject* g_exceptions = nullptr;  // by the number of the result; never freed

}  // namespace

bool load_errors() {
  const Ref module = Ref::owned(PyImport_ImportModule("dlaunch._errors"));
  if (!module) return false;
  g_exceptions = PyObject_GetAttrString(module.get(), "BY_RESULT");
  return g_exceptions != nullptr;
}

PyObject* raise_error(dl_result result, const char* text, int lost) {
  PyObject* const type = PyTuple_GetItem(g_exceptions, result);
  if (type == nullptr) return nullptr;
  const Ref message = Ref::owned(PyUnicode_DecodeUTF8(
      text, static_cast<Py_ssize_t>(__builtin_strlen(text)), "backslashreplace"));
  const Ref error =
      message ? Ref::owned(PyObject_CallFunctionObjArgs(type, message.get(), nullptr)) : Ref();
  if (!error) return nullptr;
  if ((result == DL_ERR_PEER_LOST || result == DL_ERR_CORRUPT) && lost >= 0) {
    const Ref rank = Ref::owned(PyLong_FromLong(lost));
    if (!rank || PyObject_SetAttrString(error.get(), "rank", rank.get()) != 0) return nullptr;
  }
  PyErr_SetObject(type, error.get());
  return nullptr;
}

PyObject* raise_last(dl_result result, const dl_comm* comm) {
  return raise_error(result, dl_last_error(comm), comm == nullptr ? -1 : dl_peer_lost(comm));
}

PyObject* raise_closed(const char* text) { return raise_error(DL_OK, text, -1); }

}  // namespace dlaunch::python
