// dlaunch.Request: a background call.
#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_request_type = nullptr;

namespace {

using Request = RequestParts;

// The result of an operation that is done, for its caller.
PyObject* outcome(Request& request) {
  Operation& operation = *request.operation;
  request.handle->forget(operation);
  if (operation.result == DL_OK) return result_of(*request.collective, operation.call);
  if (operation.call.used_op.raise()) return nullptr;
  const char* const text =
      operation.error_text ? PyBytes_AsString(operation.error_text.get()) : "out of memory";
  return raise_error(operation.result, text, operation.lost);
}

bool refuse_second(const Operation& operation) {
  if (!operation.waited) return true;
  PyErr_SetString(PyExc_RuntimeError, "wait: another thread waits for this request");
  return false;
}

constexpr Signature kWait{"wait", {"timeout"}, 0, 1};
PyObject* wait(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    double timeout = -1;
    auto& request = parts_of<Request>(self);
    if (!parse(kWait, args, count, names, given) ||
        !seconds("wait", "timeout", given[0], timeout)) {
      return nullptr;
    }
    if (request.operation->done) return outcome(request);
    const EnteredBeside entered(*request.handle, "wait");
    if (!entered || !refuse_second(*request.operation)) return nullptr;
    wait_for(*request.handle, *request.operation, timeout);
    if (request.operation->done) return outcome(request);
    return raise_error(
        DL_ERR_TIMEOUT,
        "wait: the call is not done within this time; it continues, and you may wait for it again",
        -1);
  });
}

PyObject* test(PyObject* self, PyObject*) {
  return contained([&]() -> PyObject* {
    auto& request = parts_of<Request>(self);
    if (request.operation->done) return PyBool_FromLong(1);
    const EnteredBeside entered(*request.handle, "test");
    if (!entered || !refuse_second(*request.operation)) return nullptr;
    return PyBool_FromLong(is_done(*request.handle, *request.operation) ? 1 : 0);
  });
}

PyMethodDef g_request_methods[] = {
    {"wait", as_method(wait), kMethod, nullptr},
    {"test", test, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// The requests of wait_any(). False: sets an exception, because an argument is not a Request, or
// another thread waits for it.
bool take_requests(PyObject* tuple, std::vector<Request>& all) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GetItem(tuple, i);
    if (Py_TYPE(item) != g_request_type) {
      PyErr_SetString(PyExc_TypeError, "wait_any: an item is no dlaunch.Request");
      return false;
    }
    all.push_back(parts_of<Request>(item));
    if (!all.back().operation->done && !refuse_second(*all.back().operation)) return false;
    for (Py_ssize_t before = 0; before < i; ++before) {
      if (PyTuple_GetItem(tuple, before) == item) {
        PyErr_SetString(PyExc_ValueError, "wait_any: a request is listed twice");
        return false;
      }
    }
  }
  return true;
}

// Blocks for the first of them; the caller has entered their communicators.
PyObject* first_of(std::vector<Request>& all) {
  std::vector<dl_request*> requests;
  requests.reserve(all.size());
  for (const Request& request : all) {
    request.operation->waited = true;
    requests.push_back(request.operation->request);
  }
  std::size_t index = 0;
  const dl_result result =
      beside_others([&] { return dl_wait_any(requests.size(), requests.data(), &index); });
  for (const Request& request : all) request.operation->waited = false;
  if (index >= all.size()) return raise_error(result, "wait_any: no request was taken", -1);
  all[index].operation->request = requests[index];
  take_end(*all[index].handle, *all[index].operation, result);
  all[index].handle->forget(*all[index].operation);
  return PyLong_FromSize_t(index);
}

}  // namespace

PyTypeObject* make_request_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<Request>)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {Py_tp_methods, g_request_methods},
      {Py_tp_doc, const_cast<char*>("A call in the background, which keeps its arrays until it is "
                                    "done. wait() returns what the call does.")},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch.Request", sizeof(Object<Request>), 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyObject* start(const std::shared_ptr<Handle>& handle, const Collective& collective,
                const Given& given) {
  const Entered entered(*handle, collective.signature.call);
  if (!entered) return nullptr;
  auto operation = std::make_shared<Operation>();
  if (!collective.prepare(handle->comm(), given, operation->call)) {
    return handle->refused(collective.signature.call);
  }
  // Make it before the operation begins: no step may fail between the begin and its place in the
  // list.
  Ref request = Ref::owned(new_object(
      g_request_type,
      RequestParts{.handle = handle, .operation = operation, .collective = &collective}));
  if (!request) return nullptr;
  operation->done = true;  // until it has begun
  handle->keep(operation);
  const dl_result result = beside_others(
      [&] { return collective.start(handle->comm(), operation->call, &operation->request); });
  if (result != DL_OK) {
    handle->forget(*operation);
    return raise_last(result, handle->comm());
  }
  operation->done = false;
  return request.release();
}

PyObject* wait_any(PyObject*, PyObject* requests) {
  return contained([&]() -> PyObject* {
    const Ref tuple = Ref::owned(PySequence_Tuple(requests));
    std::vector<Request> all;
    if (!tuple || !take_requests(tuple.get(), all)) return nullptr;
    if (all.empty()) {
      PyErr_SetString(PyExc_ValueError, "wait_any: no requests were given");
      return nullptr;
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].operation->done) return PyLong_FromSize_t(i);
    }
    std::list<EnteredBeside> entered;
    for (const Request& request : all) {
      if (!entered.emplace_back(*request.handle, "wait_any")) return nullptr;
    }
    return first_of(all);
  });
}

}  // namespace dlaunch::python
