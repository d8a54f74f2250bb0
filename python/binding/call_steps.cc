#include "python/binding/call_steps.h"

namespace dlaunch::python {

namespace {

PyObject* g_empty = nullptr;  // never freed

}  // namespace

bool load_arrays() {
  const Ref module = Ref::owned(PyImport_ImportModule("dlaunch._arrays"));
  if (!module) return false;
  g_empty = PyObject_GetAttrString(module.get(), "empty");
  return g_empty != nullptr;
}

Shape shape_of(const View& view) {
  Shape shape(static_cast<std::size_t>(view.dimensions()));
  for (int d = 0; d < view.dimensions(); ++d) shape[static_cast<std::size_t>(d)] = view.extent(d);
  return shape;
}

Ref new_array(PyObject* like, const Shape& shape) {
  Ref tuple = Ref::owned(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  if (!tuple) return {};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyObject* const extent = PyLong_FromSsize_t(shape[i]);
    if (extent == nullptr) return {};
    PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), extent);
  }
  return Ref::owned(PyObject_CallFunctionObjArgs(g_empty, like, tuple.get(), nullptr));
}

bool fits(const View& view, std::size_t expected, const View& like, Named named) {
  if (view.count() != expected) {
    PyErr_Format(PyExc_ValueError, "%s: %s has %zu elements, and needs %zu", named.call,
                 named.argument, view.count(), expected);
    return false;
  }
  if (view.element() != like.element()) {
    PyErr_Format(PyExc_TypeError, "%s: %s has type %s, and the other array has type %s", named.call,
                 named.argument, name_of(view.element()), name_of(like.element()));
    return false;
  }
  if (view.count() > 0 && like.count() > 0 && view.gpu() != like.gpu()) {
    PyErr_Format(PyExc_ValueError, "%s: %s is not where the other array is, in host or GPU memory",
                 named.call, named.argument);
    return false;
  }
  return true;
}

bool take_in(const Collective& what, PyObject* object, Use use, Call& call) {
  if (!call.in.take(object, use, {what.signature.call, what.signature.names[0]})) return false;
  call.from = call.in.data();
  return true;
}

bool take_out(const Collective& what, PyObject* in, PyObject* out, std::size_t expected,
              const Shape& shape, Call& call) {
  const Named named{what.signature.call, "out"};
  call.result = given_out(out) ? Ref::of(out) : new_array(in, shape);
  if (!call.result || !call.out.take(call.result.get(), Use::write, named)) return false;
  call.to = call.out.data();
  return fits(call.out, expected, call.in, named);
}

bool takes_op(const char* name, PyObject* given, Call& call) {
  if (given == nullptr || own_op(given) == nullptr) return operation(name, given, call.op);
  return call.used_op.take(name, given, call.op);
}

std::optional<Carried> reduced_by(const Collective& what, Element element, const Call& call) {
  const auto type = reduced(element, call.op);
  if (!type) {
    PyErr_Format(PyExc_TypeError, "%s: '%s' is not defined for %s", what.signature.call,
                 name_of(call.op), name_of(element));
  }
  return type;
}
bool set_type(std::optional<Carried> type, std::size_t count, Call& call) {
  if (!type) return false;
  call.dtype = type->dtype;
  call.count = count * type->per_element;
  return true;
}
bool moves(std::size_t count, Call& call) {
  return set_type(carried(call.in.element()), count, call);
}
bool reduces(const Collective& what, std::size_t count, Call& call) {
  return set_type(reduced_by(what, call.in.element(), call), count, call);
}

bool take_result(const Collective& what, PyObject* x, PyObject* out, Call& call) {
  const bool in_place = x == out;
  if (!take_in(what, x, in_place ? Use::write : Use::read, call)) return false;
  if (!in_place) {
    return take_out(what, x, out, call.in.count(), given_out(out) ? Shape() : shape_of(call.in),
                    call);
  }
  call.to = call.in.data();
  call.result = Ref::of(x);
  return true;
}
bool prepare_like(const Collective& what, const Given& given, Call& call) {
  const auto [x, op, out] = std::array{given[0], given[1], given[2]};
  return takes_op(what.signature.call, op, call) && take_result(what, x, out, call) &&
         reduces(what, call.in.count(), call);
}

bool take_list(Named named, PyObject* sequence, Use use, Call& call,
               std::vector<const View*>& taken) {
  const Ref arrays = Ref::owned(PySequence_Tuple(sequence));
  if (!arrays) return false;
  const Py_ssize_t size = PyTuple_Size(arrays.get());
  taken.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    View& view = call.views.emplace_back();
    if (!view.take(PyTuple_GetItem(arrays.get(), i), use, named)) return false;
    const View& first = call.views.front();
    if (!fits(view, view.count(), first, named)) return false;
    taken.push_back(&view);
  }
  return true;
}

}  // namespace dlaunch::python
