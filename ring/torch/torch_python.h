// Python's lock and its exceptions, if this process runs Python: looked up at run time, so that one
// build serves each version of Python.
#pragma once

#include <dlfcn.h>

#include <exception>
#include <string>
#include <utility>

#ifdef Py_PYTHON_H
#include <torch/csrc/Exceptions.h>
#else
namespace torch {
// PyTorch's own exception, from which it finds the Python exception: as in torch/csrc/Exceptions.h,
// which includes Python.
struct PyTorchError : public std::exception {
  PyTorchError() = default;
  explicit PyTorchError(std::string words) : msg(std::move(words)) {}
  virtual struct _object* python_type() = 0;
  const char* what() const noexcept override { return msg.c_str(); }
  std::string msg;
};
}  // namespace torch
#endif

namespace dlring_torch {

// The functions that CPython exports, or null.
struct PythonCalls {
  int (*is_initialized)() = nullptr;
  int (*holds_lock)() = nullptr;
  int (*ensure)() = nullptr;
  void (*release)(int) = nullptr;
  void* (*save)() = nullptr;
  void (*restore)(void*) = nullptr;

  static const PythonCalls& get() {
    static const PythonCalls found = [] {
      PythonCalls calls;
      find("Py_IsInitialized", calls.is_initialized);
      find("PyGILState_Check", calls.holds_lock);
      find("PyGILState_Ensure", calls.ensure);
      find("PyGILState_Release", calls.release);
      find("PyEval_SaveThread", calls.save);
      find("PyEval_RestoreThread", calls.restore);
      return calls;
    }();
    return found;
  }
  bool running() const { return is_initialized != nullptr && is_initialized() != 0; }

 private:
  template <class Function>
  static void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  }
};

// A class of Python's.
using PythonClass = struct _object;

// The exception classes for a PeerLost; the loader of this library sets them.
inline PythonClass* peer_lost_class = nullptr;
inline PythonClass* corrupt_class = nullptr;

inline PythonClass* class_of_peer_lost(bool corrupt) {
  PythonClass* const wanted = corrupt ? corrupt_class : peer_lost_class;
  if (wanted != nullptr) return wanted;
  return *static_cast<PythonClass**>(::dlsym(RTLD_DEFAULT, "PyExc_RuntimeError"));
}

// Releases Python's lock while it exists, if this thread holds it: the awaited thread may need it.
class WithoutGil {
 public:
  WithoutGil() {
    const auto& python = PythonCalls::get();
    if (python.running() && python.holds_lock() != 0) kept_ = python.save();
  }
  ~WithoutGil() {
    if (kept_ != nullptr) PythonCalls::get().restore(kept_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* kept_ = nullptr;
};

// Keeps this thread registered with Python, from enter() to leave(). A thread that asks for
// Python's lock unregistered registers for that moment, under a lock; a tensor that Python knew
// does so when it ends here. A fork at that moment leaves the lock locked in the child: up to
// Python 3.11 the child hangs, and with it the waiter for it, such as for a worker of a DataLoader.
class PythonThread {
 public:
  void enter() {
    const auto& python = PythonCalls::get();
    if (!python.running()) return;
    lock_ = python.ensure();
    kept_ = python.save();
  }
  // Not a destructor: it does not return if Python is about to end.
  void leave() {
    if (kept_ == nullptr) return;
    PythonCalls::get().restore(kept_);
    PythonCalls::get().release(lock_);
  }

 private:
  int lock_ = 0;
  void* kept_ = nullptr;
};

}  // namespace dlring_torch
