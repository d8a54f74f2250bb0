// dlaunch.Persistent: a call that is made many times with the same arrays.
#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_persistent_type = nullptr;

namespace {

PyObject* run_persistent(PyObject* self, PyObject*) {
  return contained([&]() -> PyObject* {
    const auto& parts = parts_of<PersistentParts>(self);
    const char* const name = parts.collective->signature.call;
    Handle& handle = *parts.handle;
    const Entered entered(handle, name);
    if (!entered) return nullptr;
    if (handle.batch_levels > 0) {
      PyErr_Format(PyExc_ValueError, "%s: a persistent call cannot be in a batch of Python", name);
      return handle.refused(name);
    }
    const dl_result result = beside_others([&] { return dl_persistent_run(parts.made); });
    if (result == DL_OK) return result_of(*parts.collective, *parts.call);
    if (parts.call->used_op.raise()) return nullptr;
    return raise_last(result, handle.comm());
  });
}

PyMethodDef g_persistent_methods[] = {
    {"run", run_persistent, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* make_persistent_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<PersistentParts>)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {Py_tp_methods, g_persistent_methods},
      {Py_tp_doc,
       const_cast<char*>("A call that is made many times with the same arrays, by run(): "
                         "all_reduce_init() and similar calls make it.")},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch.Persistent", sizeof(Object<PersistentParts>), 0, Py_TPFLAGS_DEFAULT,
                   slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyObject* new_persistent(const std::shared_ptr<Handle>& handle, const Collective& collective,
                         const Given& given) {
  const Entered entered(*handle, collective.signature.call);
  auto call = std::make_unique<Call>();
  if (!entered || !collective.prepare(handle->comm(), given, *call)) return nullptr;
  dl_persistent* made = nullptr;
  const dl_result result = collective.init(handle->comm(), *call, &made);
  if (result != DL_OK) return raise_last(result, handle->comm());
  return new_object(g_persistent_type, PersistentParts(handle, std::move(call), &collective, made));
}

}  // namespace dlaunch::python
