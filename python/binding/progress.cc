// dlaunch.progress(): how far the program has come.
#include <array>
#include <cstddef>
#include <cstdint>

#include "python/binding/arguments.h"
#include "python/binding/types.h"

namespace dlaunch::python {
namespace {

constexpr std::size_t kMostValues = 16;  // more are not sent

bool step_of(const char* argument, PyObject* given, std::int64_t& value) {
  const Ref number = Ref::owned(PyNumber_Index(given));
  if (!number) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "progress: %s must be a whole number, and is %R", argument,
                 reinterpret_cast<PyObject*>(Py_TYPE(given)));
    return false;
  }
  value = PyLong_AsLongLong(number.get());
  return value != -1 || PyErr_Occurred() == nullptr;
}

struct Report {
  std::int64_t step = 0, total = 0;
  std::array<Ref, kMostValues> kept;  // the names
  std::array<dl_value, kMostValues> values{};
  std::size_t count = 0;

  bool take_steps(PyObject* const* args, Py_ssize_t given, PyObject* names) {
    PyObject* of[2] = {given > 0 ? args[0] : nullptr, given > 1 ? args[1] : nullptr};
    if (given > 2) {
      PyErr_Format(PyExc_TypeError, "progress() takes 2 arguments without a name, and got %zd",
                   given);
      return false;
    }
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
      const int at = place_of(PyTuple_GetItem(names, i));
      if (at < 2 && of[at] != nullptr) {
        PyErr_Format(PyExc_TypeError, "progress() got its argument '%U' twice",
                     PyTuple_GetItem(names, i));
        return false;
      }
      if (at < 2) of[at] = args[given + i];
    }
    if (of[0] == nullptr) {
      PyErr_SetString(PyExc_TypeError, "progress() needs its argument 'step'");
      return false;
    }
    return step_of("step", of[0], step) &&
           (of[1] == nullptr || of[1] == Py_None || step_of("total", of[1], total));
  }

  bool take_values(PyObject* const* named, PyObject* names) {
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
      PyObject* const name = PyTuple_GetItem(names, i);
      if (place_of(name) < 2 || count == values.size()) continue;
      if (!text("progress", "a name", name, kept[count], values[count].name)) return false;
      values[count].value = PyFloat_AsDouble(named[i]);
      if (values[count].value == -1 && PyErr_Occurred() != nullptr) return false;
      ++count;
    }
    return true;
  }

 private:
  // 2: it is a value.
  static int place_of(PyObject* name) {
    if (PyUnicode_CompareWithASCIIString(name, "step") == 0) return 0;
    return PyUnicode_CompareWithASCIIString(name, "total") == 0 ? 1 : 2;
  }
};

}  // namespace

// A tensor becomes a number only if that will be sent: it may have to wait for a GPU.
PyObject* report_progress(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Report report;
    if (!report.take_steps(args, count, names)) return nullptr;
    const bool due = dl_report_due(report.step, report.total) != 0;
    if (due && !report.take_values(args + count, names)) return nullptr;
    return PyBool_FromLong(
        dl_report_progress(report.step, report.total, report.values.data(), report.count));
  });
}

}  // namespace dlaunch::python
