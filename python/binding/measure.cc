// The call from C alone, with which dlaunch.bench compares a call from Python.
#include <time.h>

#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {
namespace {

constexpr Signature kMeasure{"measure", {"communicator", "x", "times"}, 3, 3};

double now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

// Nanoseconds of an all_reduce in place, called this many times from C.
PyObject* measure(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    int times = 0;
    if (!parse(kMeasure, args, count, names, given) ||
        !integer("measure", "times", given[2], times)) {
      return nullptr;
    }
    if (Py_TYPE(given[0]) != g_communicator_type || times < 1) {
      PyErr_SetString(PyExc_TypeError,
                      "measure: give a communicator, an array and a number of calls");
      return nullptr;
    }
    Handle& handle = *parts_of<CommunicatorParts>(given[0]).handle;
    const Entered entered(handle, "measure");
    Call call;
    const Given in_place{given[1], nullptr, given[1]};
    if (!entered || !kAllReduce.prepare(handle.comm(), in_place, call)) return nullptr;
    dl_result result = DL_OK;
    double ns = 0;
    {
      const OthersRun others_run;
      const double begin = now_ns();
      for (int i = 0; i < times && result == DL_OK; ++i)
        result = kAllReduce.run(handle.comm(), call);
      ns = (now_ns() - begin) / times;
    }
    return result == DL_OK ? PyFloat_FromDouble(ns) : raise_last(result, handle.comm());
  });
}

}  // namespace dlaunch::python
