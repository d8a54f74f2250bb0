// dlaunch._core.Outer: <dlaunch/outer.h> for dlaunch.Outer, which has the manual.
#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_outer_type = nullptr;

namespace {

// Calls call(outer), one thread at a time; other threads run meanwhile.
template <class Call>
PyObject* of_outer(PyObject* self, const char* name, Call call) {
  return contained([&]() -> PyObject* {
    auto& parts = parts_of<OuterParts>(self);
    const Entered entered(*parts.handle, name);
    if (!entered) return nullptr;
    const dl_result result = beside_others([&] { return call(parts.outer); });
    return result == DL_OK ? none() : raise_last(result, parts.handle->comm());
  });
}
PyObject* step(PyObject* self, PyObject*) { return of_outer(self, "step", dl_outer_step); }
PyObject* finish_outer(PyObject* self, PyObject*) {
  return of_outer(self, "finish", dl_outer_finish);
}
PyObject* settle(PyObject* self, PyObject*) { return of_outer(self, "settle", dl_outer_settle); }
PyObject* restored(PyObject* self, PyObject*) {
  return of_outer(self, "restored", dl_outer_restored);
}

PyObject* get_due(PyObject* self, void*) {
  return PyBool_FromLong(dl_outer_due(parts_of<OuterParts>(self).outer));
}
PyObject* get_changes(PyObject* self, void*) {
  return PyBool_FromLong(dl_outer_due(parts_of<OuterParts>(self).outer) == DL_OUTER_CHANGES);
}
PyObject* get_steps(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(dl_outer_steps(parts_of<OuterParts>(self).outer));
}
PyObject* get_in_flight(PyObject* self, void*) {
  return PyBool_FromLong(dl_outer_in_flight(parts_of<OuterParts>(self).outer));
}
PyObject* get_shared_bytes(PyObject* self, void*) {
  void* at = nullptr;
  std::size_t bytes = 0;
  dl_outer_shared(parts_of<OuterParts>(self).outer, &at, &bytes);
  return PyLong_FromSize_t(bytes);
}

// The memory of all of the state, as bytes.
int get_outer_buffer(PyObject* self, Buffer* buffer, int flags) {
  static char format[] = "B";
  dl_outer* const outer = parts_of<OuterParts>(self).outer;
  void *at = nullptr, *residual = nullptr;
  std::size_t shared_bytes = 0, residual_bytes = 0;
  dl_outer_shared(outer, &at, &shared_bytes);
  dl_outer_residual(outer, &residual, &residual_bytes);
  *buffer = {};
  buffer->buf = at;
  buffer->len = static_cast<Py_ssize_t>(shared_bytes + residual_bytes);
  buffer->itemsize = 1;
  buffer->ndim = 1;
  buffer->format = (flags & kBufferFormat) != 0 ? format : nullptr;
  buffer->shape = (flags & kBufferShape) != 0 ? &buffer->len : nullptr;
  buffer->strides = (flags & kBufferStrides) == kBufferStrides ? &buffer->itemsize : nullptr;
  Py_INCREF(self);
  buffer->obj = self;
  return 0;
}

PyMethodDef g_outer_methods[] = {
    {"step", step, METH_NOARGS, nullptr},     {"finish", finish_outer, METH_NOARGS, nullptr},
    {"settle", settle, METH_NOARGS, nullptr}, {"restored", restored, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef g_outer_attributes[] = {
    {"due", get_due, nullptr, nullptr, nullptr},
    {"changes", get_changes, nullptr, nullptr, nullptr},
    {"steps", get_steps, nullptr, nullptr, nullptr},
    {"in_flight", get_in_flight, nullptr, nullptr, nullptr},
    {"shared_bytes", get_shared_bytes, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

bool take_tensors(PyObject* given, std::list<View>& views) {
  const Ref tuple = Ref::owned(PySequence_Tuple(given));
  if (!tuple) return false;
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple.get()); ++i) {
    View& view = views.emplace_back();
    if (!view.take(PyTuple_GetItem(tuple.get(), i), Use::write, {"Outer", "tensors"})) return false;
    if (view.element() == Element{Element::Kind::real, sizeof(float)}) continue;
    PyErr_Format(PyExc_TypeError, "Outer: tensor %zd has type %s, and must have float32", i,
                 name_of(view.element()));
    return false;
  }
  return true;
}

constexpr Signature kOuter{"Outer",
                           {"communicator", "tensors", "inner_steps", "learning_rate", "momentum",
                            "nesterov", "codec", "fragments", "delay", "mixing", "sites"},
                           2,
                           2};
bool outer_sites(PyObject* given, dl_sites*& sites) {
  if (given == nullptr || given == Py_None) return true;
  if (Py_TYPE(given) != g_sites_type) {
    PyErr_SetString(PyExc_TypeError, "Outer: sites must be dlaunch.Sites");
    return false;
  }
  sites = parts_of<SitesParts>(given).sites;
  return true;
}
bool outer_options(const Given& given, dl_outer_options& options) {
  dl_outer_options_init(&options);
  const char* const call = kOuter.call;
  return integer(call, "inner_steps", given[2], options.inner_steps) &&
         number(call, "learning_rate", given[3], options.learning_rate) &&
         number(call, "momentum", given[4], options.momentum) && flag(given[5], options.nesterov) &&
         codec(call, given[6], options.codec) &&
         integer(call, "fragments", given[7], options.fragments) &&
         integer(call, "delay", given[8], options.delay) &&
         number(call, "mixing", given[9], options.mixing) && outer_sites(given[10], options.sites);
}

}  // namespace

PyTypeObject* make_outer_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<OuterParts>)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {kSlotGetBuffer, reinterpret_cast<void*>(get_outer_buffer)},
      {Py_tp_methods, g_outer_methods},
      {Py_tp_getset, g_outer_attributes},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch._core.Outer", sizeof(Object<OuterParts>), 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyObject* new_outer(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    dl_outer_options options;
    if (!parse(kOuter, args, count, names, given) || !outer_options(given, options)) return nullptr;
    if (Py_TYPE(given[0]) != g_communicator_type) {
      PyErr_SetString(PyExc_TypeError, "Outer: communicator must be a dlaunch.Communicator");
      return nullptr;
    }
    const auto handle = parts_of<CommunicatorParts>(given[0]).handle;
    const Entered entered(*handle, "Outer");
    auto views = std::make_unique<std::list<View>>();
    if (!entered || !take_tensors(given[1], *views)) return nullptr;
    std::vector<float*> at;
    std::vector<std::size_t> counts;
    for (const View& view : *views) {
      at.push_back(static_cast<float*>(view.data()));
      counts.push_back(view.count());
    }
    dl_outer* outer = nullptr;
    const dl_result result =
        dl_outer_new(handle->comm(), &options, at.size(), at.data(), counts.data(), &outer);
    if (result != DL_OK) return raise_last(result, handle->comm());
    return new_object(g_outer_type,
                      OuterParts(handle, std::move(views), outer, Ref::of(given[10])));
  });
}

}  // namespace dlaunch::python
