// dlaunch.Op: a reduction by a function of Python.
#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_op_type = nullptr;

namespace {

// Of PyMemoryView_FromMemory(), which the limited API has without its flags.
constexpr int kRead = 0x100, kWrite = 0x200;

PyObject* g_combine = nullptr;  // never freed

bool combined(const OpParts& op, const void* in, void* inout, std::size_t bytes, dl_dtype dtype) {
  auto* const left = static_cast<char*>(const_cast<void*>(in));
  const auto size = static_cast<Py_ssize_t>(bytes);
  const Ref a = Ref::owned(PyMemoryView_FromMemory(left, size, kRead));
  const Ref b = Ref::owned(PyMemoryView_FromMemory(static_cast<char*>(inout), size, kWrite));
  const Ref type = Ref::owned(PyLong_FromLong(dtype));
  return a && b && type &&
         Ref::owned(PyObject_CallFunctionObjArgs(g_combine, op.function.get(), a.get(), b.get(),
                                                 type.get(), nullptr));
}

// On any thread, without Python's lock.
int combine(const void* in, void* inout, std::size_t count, dl_dtype dtype, void* context) {
  const PyGILState_STATE lock = PyGILState_Ensure();
  auto& op = *static_cast<OpParts*>(context);
  const bool done = combined(op, in, inout, count * dl_dtype_bytes(dtype), dtype);
  if (!done) op.keep_error();
  PyGILState_Release(lock);
  return done ? 0 : 1;
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject* words) {
  return contained([&]() -> PyObject* {
    static const char* names[] = {"function", "commutative", nullptr};
    PyObject* function = nullptr;
    int commutes = 0;
    if (PyArg_ParseTupleAndKeywords(args, words, "O|$p:Op", const_cast<char**>(names), &function,
                                    &commutes) == 0) {
      return nullptr;
    }
    if (PyCallable_Check(function) == 0) {
      PyErr_Format(PyExc_TypeError, "Op: function must be callable, and is %R",
                   reinterpret_cast<PyObject*>(Py_TYPE(function)));
      return nullptr;
    }
    Ref made = Ref::owned(new_object(type, OpParts()));
    if (!made) return nullptr;
    OpParts& parts = parts_of<OpParts>(made.get());
    parts.function = Ref::of(function);
    const dl_result result = dl_op_create(combine, commutes, &parts, &parts.op);
    return result == DL_OK ? made.release() : raise_last(result, nullptr);
  });
}

PyObject* represent_op(PyObject* self) {
  if (!parts_of<OpParts>(self).function) return PyUnicode_FromString("dlaunch.premul_sum(...)");
  return PyUnicode_FromFormat("dlaunch.Op(%R)", parts_of<OpParts>(self).function.get());
}

}  // namespace

void OpParts::keep_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  error_type = Ref::owned(type);
  error_value = Ref::owned(value);
  error_traceback = Ref::owned(traceback);
}

bool raise_own_error(Call& call) {
  if (!call.op_object) return false;
  OpParts& op = parts_of<OpParts>(call.op_object.get());
  if (!op.error_type) return false;
  PyErr_Restore(op.error_type.release(), op.error_value.release(), op.error_traceback.release());
  return true;
}

const OpParts* own_op(PyObject* object) {
  return PyObject_TypeCheck(object, g_op_type) != 0 ? &parts_of<OpParts>(object) : nullptr;
}

PyObject* premul_sum(PyObject*, PyObject* given) {
  const double factor = PyFloat_AsDouble(given);
  if (factor == -1 && PyErr_Occurred() != nullptr) return nullptr;
  Ref made = Ref::owned(new_object(g_op_type, OpParts()));
  if (!made) return nullptr;
  const dl_result result = dl_op_create_premul_sum(factor, &parts_of<OpParts>(made.get()).op);
  return result == DL_OK ? made.release() : raise_last(result, nullptr);
}

PyTypeObject* make_op_type() {
  const Ref module = Ref::owned(PyImport_ImportModule("dlaunch._arrays"));
  g_combine = module ? PyObject_GetAttrString(module.get(), "combine") : nullptr;
  if (g_combine == nullptr) return nullptr;
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<OpParts>)},
      {Py_tp_new, reinterpret_cast<void*>(make)},
      {Py_tp_repr, reinterpret_cast<void*>(represent_op)},
      {Py_tp_doc, const_cast<char*>("A reduction by a function of two NumPy arrays, which returns "
                                    "a third one: Op(function, *, commutative=False).")},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch.Op", sizeof(Object<OpParts>), 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace dlaunch::python
