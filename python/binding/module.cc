// The module dlaunch._core. It has one phase, and one instance for each process: interpreters with
// their own lock refuse it, which protects its globals.
#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {
namespace {

PyObject* heartbeat(PyObject*, PyObject*) { return PyBool_FromLong(dl_heartbeat()); }

PyMethodDef g_functions[] = {
    {"init", as_method(init), kMethod, nullptr},
    {"borrow", as_method(borrow), kMethod, nullptr},
    {"wait_any", wait_any, METH_O, nullptr},
    {"premul_sum", premul_sum, METH_O, nullptr},
    {"heartbeat", heartbeat, METH_NOARGS, nullptr},
    {"progress", as_method(report_progress), kMethod, nullptr},
    {"measure", as_method(measure), kMethod, nullptr},
    {"spent", as_method(spent), kMethod, nullptr},
    {"new_outer", as_method(new_outer), kMethod, nullptr},
    {"new_sites", as_method(new_sites), kMethod, nullptr},
    {"read_journal", as_method(read_journal), kMethod, nullptr},
    {"new_state", as_method(new_state), kMethod, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef g_module{PyModuleDef_HEAD_INIT,
                     "dlaunch._core",
                     nullptr,
                     -1,
                     g_functions,
                     nullptr,
                     nullptr,
                     nullptr,
                     nullptr};

bool add_type(PyObject* module, const char* name, PyTypeObject* type) {
  if (type == nullptr) return false;
  Py_INCREF(type);  // the module owns one reference, we own the other
  return PyModule_AddObject(module, name, reinterpret_cast<PyObject*>(type)) == 0;
}

}  // namespace

PyObject* refuse_new(PyTypeObject*, PyObject*, PyObject*) {
  PyErr_SetString(PyExc_TypeError, "dlaunch.init() and similar calls make objects of this type");
  return nullptr;
}

constexpr Signature kInit{"init",
                          {"url", "rank", "size", "init_timeout", "op_timeout", "transport",
                           "job_id", "secret_file", "wire_codec", "elastic"},
                          0,
                          1};
PyObject* init(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    dl_options options;
    dl_options_init(&options);
    const char* url = nullptr;
    Ref kept[5];
    if (!parse(kInit, args, count, names, given) || !text("init", "url", given[0], kept[0], url) ||
        (given[1] != Py_None && !integer("init", "rank", given[1], options.rank)) ||
        (given[2] != Py_None && !integer("init", "size", given[2], options.size)) ||
        !seconds("init", "init_timeout", given[3], options.init_timeout_s) ||
        !seconds("init", "op_timeout", given[4], options.op_timeout_s) ||
        !text("init", "transport", given[5], kept[1], options.transport) ||
        !text("init", "job_id", given[6], kept[2], options.job_id) ||
        !text("init", "secret_file", given[7], kept[3], options.secret_file) ||
        !text("init", "wire_codec", given[8], kept[4], options.wire_codec)) {
      return nullptr;
    }
    options.elastic = given[9] == nullptr ? 0 : PyObject_IsTrue(given[9]);
    if (options.elastic < 0) return nullptr;
    dl_comm* comm = nullptr;
    const dl_result result = beside_others([&] { return dl_init(url, &options, &comm); });
    return result == DL_OK ? new_communicator(comm) : raise_last(result, nullptr);
  });
}

constexpr Signature kSpent{"spent", {"what", "seconds"}, 2, 2};
PyObject* spent(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    int what = 0;
    double time = 0;
    if (!parse(kSpent, args, count, names, given) || !integer("spent", "what", given[0], what) ||
        !seconds("spent", "seconds", given[1], time)) {
      return nullptr;
    }
    dl_spent(what == DL_GC ? DL_GC : DL_INPUT, time);
    Py_RETURN_NONE;
  });
}

}  // namespace dlaunch::python

PyMODINIT_FUNC PyInit__core() {
  using namespace dlaunch::python;
  if (!find_buffer_functions() || !load_errors() || !load_arrays()) return nullptr;
  if (g_communicator_type == nullptr) {
    g_communicator_type = make_communicator_type();
    g_request_type = make_request_type();
    g_memory_type = make_memory_type();
    g_state_type = make_state_type();
    g_op_type = make_op_type();
    g_outer_type = make_outer_type();
    g_batch_type = make_batch_type();
    g_persistent_type = make_persistent_type();
    g_sites_type = make_sites_type();
  }
  Ref module = Ref::owned(PyModule_Create(&g_module));
  if (!module || !add_type(module.get(), "Communicator", g_communicator_type) ||
      !add_type(module.get(), "Request", g_request_type) ||
      !add_type(module.get(), "Memory", g_memory_type) ||
      !add_type(module.get(), "Outer", g_outer_type) ||
      !add_type(module.get(), "Batch", g_batch_type) ||
      !add_type(module.get(), "Persistent", g_persistent_type) ||
      !add_type(module.get(), "Sites", g_sites_type) ||
      !add_type(module.get(), "State", g_state_type) || !add_type(module.get(), "Op", g_op_type) ||
      PyModule_AddStringConstant(module.get(), "version", dl_version()) != 0) {
    return nullptr;
  }
  return module.release();
}
