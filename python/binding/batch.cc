// dlaunch.Batch: for a with statement, whose calls begin together at its end.
#include <string>

#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_batch_type = nullptr;

namespace {

PyObject* enter_batch(PyObject* self, PyObject*) {
  return contained([&]() -> PyObject* {
    Handle& handle = *parts_of<BatchParts>(self).handle;
    const Entered entered(handle, "batch");
    if (!entered) return nullptr;
    const dl_result result = dl_batch_start(handle.comm());
    if (result != DL_OK) return raise_last(result, handle.comm());
    if (handle.batch_levels++ == 0) handle.refused_in_batch = nullptr;
    Py_INCREF(self);
    return self;
  });
}

// Carries the batch out; at an inner level only leaves that.
PyObject* end_batch(Handle& handle) {
  const Entered entered(handle, "batch");
  if (!entered) return nullptr;
  if (handle.batch_levels == 1 && handle.refused_in_batch != nullptr) {
    const std::string text = std::string("batch: ") + handle.refused_in_batch +
                             " was refused in it, so none of its calls was made";
    handle.drop_batch();
    return raise_error(DL_ERR_INVALID, text.c_str(), -1);
  }
  const dl_result result = beside_others([&] { return dl_batch_end(handle.comm()); });
  if (handle.batch_levels > 0 && --handle.batch_levels > 0) return none();
  std::list<Call> calls;
  calls.swap(handle.batched);
  if (result == DL_OK) return none();
  for (Call& call : calls) {
    if (call.used_op.raise()) return nullptr;
  }
  return raise_last(result, handle.comm());
}

constexpr Signature kExit{"__exit__", {"kind", "error", "traceback"}, 3, 3};
PyObject* exit_batch(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    if (!parse(kExit, args, count, names, given)) return nullptr;
    Handle& handle = *parts_of<BatchParts>(self).handle;
    if (given[0] == Py_None) return end_batch(handle);
    // The program may catch the error in the outer batch, which then refuses at its end.
    if (handle.batch_levels > 1) {
      (void)handle.refused("an inner batch");
      return end_batch(handle);
    }
    if (handle.closed()) return none();
    const Entered entered(handle, "batch");
    if (!entered) return handle.drop_batch_later(), nullptr;
    handle.drop_batch();
    return none();
  });
}

PyMethodDef g_batch_methods[] = {
    {"__enter__", enter_batch, METH_NOARGS, nullptr},
    {"__exit__", as_method(exit_batch), kMethod, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_batch_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<BatchParts>)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {Py_tp_methods, g_batch_methods},
      {Py_tp_doc,
       const_cast<char*>("A with statement whose calls begin together at its end: batch().")},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch.Batch", sizeof(Object<BatchParts>), 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyObject* new_batch(PyObject* communicator, PyObject*) {
  return new_object(g_batch_type,
                    BatchParts{.handle = parts_of<CommunicatorParts>(communicator).handle});
}

PyObject* add_to_batch(Handle& handle, const Collective& collective, const Given& given) {
  if (collective.result != nullptr) {
    PyErr_Format(PyExc_ValueError,
                 "%s: it returns what is not known before the end of the batch: call it outside",
                 collective.signature.call);
    return handle.refused(collective.signature.call);
  }
  Call& call = handle.batched.emplace_back();
  const bool prepared = collective.prepare(handle.comm(), given, call);
  const dl_result result = prepared ? collective.run(handle.comm(), call) : DL_ERR_INVALID;
  if (result == DL_OK) return result_of(collective, call);
  handle.batched.pop_back();
  return prepared ? raise_last(result, handle.comm()) : handle.refused(collective.signature.call);
}

}  // namespace dlaunch::python
