// Python's limited API of 3.9, which every CPython from 3.9 on provides, and additions for this
// module.
//
// The buffer protocol is part of the stable ABI from 3.11 on, with the same structure since 3.0 and
// with functions that 3.9 and 3.10 export, too. So this file declares them, and the module looks
// them up when it is loaded.
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <new>
#include <utility>

namespace dlaunch::python {

struct Buffer {  // Py_buffer
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};
constexpr int kBufferWritable = 0x1;
constexpr int kBufferFormat = 0x4;
constexpr int kBufferShape = 0x8;
constexpr int kBufferStrides = 0x10 | kBufferShape;
// Slots of a type.
constexpr int kSlotGetBuffer = 1;
constexpr int kSlotReleaseBuffer = 2;
// METH_FASTCALL.
constexpr int kFastCall = 0x80;

struct BufferFunctions {
  int (*check)(PyObject*) = nullptr;
  int (*get)(PyObject*, Buffer*, int) = nullptr;
  void (*release)(Buffer*) = nullptr;
};
const BufferFunctions& buffers();
// False: sets an exception, because this Python lacks one of the functions.
bool find_buffer_functions();

// An owned reference, or none.
class Ref {
 public:
  Ref() = default;
  static Ref owned(PyObject* object) { return Ref(object); }
  static Ref of(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    PyObject* const old = std::exchange(object_, std::exchange(other.object_, nullptr));
    Py_XDECREF(old);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  [[nodiscard]] PyObject* get() const { return object_; }
  [[nodiscard]] PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// Other threads of Python run while it exists.
class OthersRun {
 public:
  OthersRun() : state_(PyEval_SaveThread()) {}
  ~OthersRun() { PyEval_RestoreThread(state_); }
  OthersRun(const OthersRun&) = delete;
  OthersRun& operator=(const OthersRun&) = delete;

 private:
  PyThreadState* const state_;
};

// Returns call()'s result; other threads of Python run meanwhile.
template <class Call>
auto beside_others(Call call) {
  const OthersRun others_run;
  return call();
}

// Stops exceptions of C++ before they reach Python; only memory exceptions occur.
template <class Body>
PyObject* contained(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (...) {
    PyErr_SetString(PyExc_SystemError, "dlaunch: an unexpected exception of C++");
    return nullptr;
  }
}

inline PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

}  // namespace dlaunch::python
