#include "python/binding/arguments.h"

#include <cstring>
#include <iterator>

#include <climits>

#include "python/binding/types.h"

namespace dlaunch::python {
namespace {

constexpr const char* kOps[] = {"sum", "product", "max", "min", "avg", "band", "bor", "bxor"};

bool wrong_type(const char* call, const char* argument, const char* wanted, PyObject* given) {
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_TypeError) == 0 &&
      PyErr_ExceptionMatches(PyExc_UnicodeError) == 0) {
    return false;
  }
  PyErr_Clear();
  PyErr_Format(PyExc_TypeError, "%s: %s must be %s, and is %R", call, argument, wanted,
               reinterpret_cast<PyObject*>(Py_TYPE(given)));
  return false;
}

int position_of(const Signature& signature, PyObject* name) {
  for (int i = 0; i < kMostArguments && signature.names[i] != nullptr; ++i) {
    if (PyUnicode_CompareWithASCIIString(name, signature.names[i]) == 0) return i;
  }
  return -1;
}

}  // namespace

bool parse(const Signature& signature, PyObject* const* args, Py_ssize_t count, PyObject* names,
           Given& given) {
  given.fill(nullptr);
  if (count > signature.by_position) {
    PyErr_Format(PyExc_TypeError, "%s() takes %d arguments without a name, and got %zd",
                 signature.call, signature.by_position, count);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) given[i] = args[i];
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* const name = PyTuple_GetItem(names, i);
    const int at = position_of(signature, name);
    if (at < 0 || given[at] != nullptr) {
      PyErr_Format(PyExc_TypeError,
                   at < 0 ? "%s() has no argument '%U'" : "%s() got its argument '%U' twice",
                   signature.call, name);
      return false;
    }
    given[at] = args[count + i];
  }
  for (int i = 0; i < signature.required; ++i) {
    if (given[i] == nullptr) {
      PyErr_Format(PyExc_TypeError, "%s() needs its argument '%s'", signature.call,
                   signature.names[i]);
      return false;
    }
  }
  return true;
}

bool integer(const char* call, const char* argument, PyObject* given, int& value) {
  if (given == nullptr) return true;
  const Ref number = Ref::owned(PyNumber_Index(given));
  if (!number) return wrong_type(call, argument, "a whole number", given);
  int overflow = 0;
  const long all = PyLong_AsLongAndOverflow(number.get(), &overflow);
  if (overflow != 0 || all < INT_MIN || all > INT_MAX) {
    PyErr_Format(PyExc_OverflowError, "%s: %s is too large", call, argument);
    return false;
  }
  value = static_cast<int>(all);
  return true;
}

bool shard_range(const char* call, int shards, int rank, int size, int& first, int& last) {
  if (dl_shard_range(shards, rank, size, &first, &last) == DL_OK) return true;
  PyErr_Format(PyExc_ValueError, "%s: shards must be 1 to %d", call, DL_MOST_SHARDS);
  return false;
}

bool seconds(const char* call, const char* argument, PyObject* given, double& value) {
  if (given == nullptr || given == Py_None) return true;
  const double all = PyFloat_AsDouble(given);
  if (all == -1 && PyErr_Occurred() != nullptr) {
    return wrong_type(call, argument, "a number of seconds or None", given);
  }
  if (!(all >= 0)) {
    PyErr_Format(PyExc_ValueError, "%s: %s must be 0 or more seconds", call, argument);
    return false;
  }
  value = all;
  return true;
}

bool operation(const char* call, PyObject* given, dl_op& op) {
  if (given == nullptr) return true;
  if (const OpParts* const own = own_op(given)) {
    op = own->any_op();
    return true;
  }
  if (PyUnicode_Check(given) == 0) return wrong_type(call, "op", "a string or an Op", given);
  for (int i = 0; i < static_cast<int>(std::size(kOps)); ++i) {
    if (PyUnicode_CompareWithASCIIString(given, kOps[i]) == 0) {
      op = static_cast<dl_op>(i);
      return true;
    }
  }
  PyErr_Format(PyExc_ValueError,
               "%s: op is %R, and must be 'sum', 'product', 'max', 'min', 'avg', 'band', 'bor' or "
               "'bxor'",
               call, given);
  return false;
}

const char* name_of(dl_op op) {
  return static_cast<std::size_t>(op) < std::size(kOps) ? kOps[op] : "a function";
}

bool codec(const char* call, PyObject* given, dl_codec& value) {
  if (given == nullptr) return true;
  if (PyUnicode_Check(given) == 0) return wrong_type(call, "codec", "a string", given);
  constexpr const char* kCodecs[] = {"none", "bf16", "int8", "fp8", "int4", "topk"};
  for (int i = 0; i < static_cast<int>(std::size(kCodecs)); ++i) {
    if (PyUnicode_CompareWithASCIIString(given, kCodecs[i]) == 0) {
      value = static_cast<dl_codec>(i);
      return true;
    }
  }
  PyErr_Format(PyExc_ValueError,
               "%s: codec is %R, and must be 'none', 'bf16', 'int8', 'fp8', 'int4' or 'topk'", call,
               given);
  return false;
}

bool number(const char* call, const char* argument, PyObject* given, double& value) {
  if (given == nullptr) return true;
  const double all = PyFloat_AsDouble(given);
  if (all == -1 && PyErr_Occurred() != nullptr) {
    return wrong_type(call, argument, "a number", given);
  }
  value = all;
  return true;
}

bool flag(PyObject* given, int& value) {
  if (given == nullptr) return true;
  value = PyObject_IsTrue(given);
  return value >= 0;
}

bool sizes(const char* call, const char* argument, PyObject* given, std::vector<std::size_t>& all) {
  const Ref tuple = Ref::owned(PySequence_Tuple(given));
  if (!tuple) return wrong_type(call, argument, "a sequence of whole numbers", given);
  const Py_ssize_t count = PyTuple_Size(tuple.get());
  all.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GetItem(tuple.get(), i);
    const Py_ssize_t number = PyNumber_AsSsize_t(item, PyExc_OverflowError);
    if (number == -1 && PyErr_Occurred() != nullptr) {
      return wrong_type(call, argument, "a sequence of whole numbers", item);
    }
    // A limit, so that a sum over all ranks does not overflow.
    if (number < 0 || number > (Py_ssize_t{1} << 44)) {
      PyErr_Format(PyExc_ValueError, "%s: %s has %zd in it", call, argument, number);
      return false;
    }
    all.push_back(static_cast<std::size_t>(number));
  }
  return true;
}

bool text(const char* call, const char* argument, PyObject* given, Ref& kept, const char*& value) {
  if (given == nullptr || given == Py_None) return true;
  if (PyUnicode_Check(given) == 0) return wrong_type(call, argument, "a string", given);
  kept = Ref::owned(PyUnicode_AsUTF8String(given));
  if (!kept) return wrong_type(call, argument, "text that can be written as UTF-8", given);
  value = PyBytes_AsString(kept.get());
  if (std::strlen(value) != static_cast<std::size_t>(PyBytes_Size(kept.get()))) {
    PyErr_Format(PyExc_ValueError, "%s: %s has a zero in it", call, argument);
    return false;
  }
  return true;
}

}  // namespace dlaunch::python
