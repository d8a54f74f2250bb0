// dlaunch.Op: a reduction by a function of Python.
#include <pthread.h>

#include <atomic>

#include "python/binding/element.h"
#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_op_type = nullptr;

namespace {

// Of PyMemoryView_FromMemory(), which the limited API has without its flags.
constexpr int kRead = 0x100, kWrite = 0x200;

PyObject* g_combine = nullptr;  // never freed

bool combined(PyObject* function, const void* in, void* inout, std::size_t bytes, dl_dtype dtype) {
  auto* const left = static_cast<char*>(const_cast<void*>(in));
  const auto size = static_cast<Py_ssize_t>(bytes);
  const Ref a = Ref::owned(PyMemoryView_FromMemory(left, size, kRead));
  const Ref b = Ref::owned(PyMemoryView_FromMemory(static_cast<char*>(inout), size, kWrite));
  const Ref type = Ref::owned(PyUnicode_FromString(name_of(dtype)));
  return a && b && type &&
         Ref::owned(PyObject_CallFunctionObjArgs(g_combine, function, a.get(), b.get(), type.get(),
                                                 nullptr));
}

// Python ends or blocks a thread that asks for its lock while it finalizes. So no function begins
// after the last one that Python's exit has waited for.
std::atomic<bool> g_ending = false;
std::atomic<int> g_running = 0;

class Running {
 public:
  Running() { ++g_running; }
  ~Running() {
    if (--g_running == 0) g_running.notify_all();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

PyObject* end_functions(PyObject*, PyObject*) {
  g_ending = true;
  beside_others([] {
    for (int running = g_running; running > 0; running = g_running) g_running.wait(running);
  });
  return none();
}

// A child has none of the parent's other threads.
void forget_threads() { g_running = 0; }

bool watch_exit() {
  static PyMethodDef method{"end_functions", end_functions, METH_NOARGS, nullptr};
  pthread_atfork(nullptr, nullptr, forget_threads);
  const Ref module = Ref::owned(PyImport_ImportModule("atexit"));
  const Ref function = Ref::owned(PyCFunction_New(&method, nullptr));
  return module && function &&
         Ref::owned(PyObject_CallMethod(module.get(), "register", "O", function.get()));
}

// On any thread, without Python's lock.
int combine(const void* in, void* inout, std::size_t count, dl_dtype dtype, void* context) {
  const Running running;
  if (g_ending) return 1;
  const PyGILState_STATE lock = PyGILState_Ensure();
  auto& use = *static_cast<OpUse*>(context);
  const bool done = combined(use.function, in, inout, count * dl_dtype_bytes(dtype), dtype);
  if (!done && use.raised) PyErr_Clear();  // the call has the first exception of its threads
  if (!done && !use.raised) use.raised.take();
  PyGILState_Release(lock);
  return done ? 0 : 1;
}

// A use of the Op that no call has; null: sets an exception.
OpUse* free_use(OpParts& parts) {
  for (OpUse& use : parts.uses) {
    if (!use.busy) return &use;
  }
  OpUse& made = parts.uses.emplace_back();
  made.function = parts.function.get();
  const dl_result result = dl_op_create(combine, parts.commutes, &made, &made.op);
  if (result == DL_OK) return &made;
  parts.uses.pop_back();
  raise_last(result, nullptr);
  return nullptr;
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
    parts.commutes = commutes;
    return free_use(parts) != nullptr ? made.release() : nullptr;
  });
}

PyObject* represent_op(PyObject* self) {
  if (!parts_of<OpParts>(self).function) return PyUnicode_FromString("dlaunch.premul_sum(...)");
  return PyUnicode_FromFormat("dlaunch.Op(%R)", parts_of<OpParts>(self).function.get());
}

// A function may refer to its own Op. Calls keep the Op, so what they hold is no garbage.
int visit_op(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const auto* const parts = reinterpret_cast<Object<OpParts>*>(self)->parts;
  if (parts != nullptr) Py_VISIT(parts->function.get());
  return 0;
}
int clear_op(PyObject* self) {
  OpParts& parts = parts_of<OpParts>(self);
  for (OpUse& use : parts.uses) use.function = nullptr;
  parts.function = Ref();
  return 0;
}
void delete_op(PyObject* self) {
  PyObject_GC_UnTrack(self);
  delete_object<OpParts>(self);
}

}  // namespace

void UsedOp::give_back() {
  OpUse* const use = std::exchange(use_, nullptr);
  if (use == nullptr) return;
  use->raised = Refusal();
  use->busy = false;
}

bool UsedOp::take(const char* call, PyObject* object, dl_op& op) {
  OpParts& parts = parts_of<OpParts>(object);
  object_ = Ref::of(object);
  if (!parts.function) {
    op = parts.any_op();
    return true;
  }
  if (g_ending) {
    PyErr_Format(
        PyExc_RuntimeError,
        "%s: Python ends, and runs no function of an Op: call it earlier, or in a function "
        "for atexit that you register after the import of dlaunch",
        call);
    return false;
  }
  use_ = free_use(parts);
  if (use_ == nullptr) return false;
  use_->busy = true;
  op = use_->op;
  return true;
}

bool UsedOp::raise() { return use_ != nullptr && use_->raised.restore(); }

const OpParts* own_op(PyObject* object) {
  return PyObject_TypeCheck(object, g_op_type) != 0 ? &parts_of<OpParts>(object) : nullptr;
}

PyObject* premul_sum(PyObject*, PyObject* given) {
  return contained([&]() -> PyObject* {
    const double factor = PyFloat_AsDouble(given);
    if (factor == -1 && PyErr_Occurred() != nullptr) return nullptr;
    Ref made = Ref::owned(new_object(g_op_type, OpParts()));
    if (!made) return nullptr;
    OpUse& use = parts_of<OpParts>(made.get()).uses.emplace_back();
    const dl_result result = dl_op_create_premul_sum(factor, &use.op);
    return result == DL_OK ? made.release() : raise_last(result, nullptr);
  });
}

PyTypeObject* make_op_type() {
  const Ref module = Ref::owned(PyImport_ImportModule("dlaunch._arrays"));
  g_combine = module ? PyObject_GetAttrString(module.get(), "combine") : nullptr;
  if (g_combine == nullptr || !watch_exit()) return nullptr;
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_op)},
      {Py_tp_traverse, reinterpret_cast<void*>(visit_op)},
      {Py_tp_clear, reinterpret_cast<void*>(clear_op)},
      {Py_tp_new, reinterpret_cast<void*>(make)},
      {Py_tp_repr, reinterpret_cast<void*>(represent_op)},
      {Py_tp_doc, const_cast<char*>("A reduction by a function of two NumPy arrays, which returns "
                                    "a third one: Op(function, *, commutative=False).")},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch.Op", sizeof(Object<OpParts>), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace dlaunch::python
