// Python's lock and its exceptions, where this process is Python's: they are found at run time, so
// that what is built here serves each version of Python.
#pragma once

#include <dlfcn.h>

#include <exception>
#include <string>
#include <utility>

#ifdef Py_PYTHON_H
#include <torch/csrc/Exceptions.h>
#else
namespace torch {
// PyTorch's own, by which it knows what to raise in Python: as in torch/csrc/Exceptions.h, which
// includes Python.
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

// What CPython exports, or null.
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

// Of what is raised for a PeerLost: whoever loads this library sets it.
inline PythonClass* peer_lost_class = nullptr;

inline PythonClass* class_of_peer_lost() {
  if (peer_lost_class != nullptr) return peer_lost_class;
  return *static_cast<PythonClass**>(::dlsym(RTLD_DEFAULT, "PyExc_RuntimeError"));
}

// Python's lock is free as long as it exists, if this thread has it: what we wait for may need it.
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

// This thread's place among Python's, from enter() to leave(). Whoever asks for Python's lock
// without one, as a tensor does that Python knew and that ends here, makes one for that moment,
// under a lock that a fork at that moment leaves locked in the child: up to Python 3.11 it hangs
// there, and with it who waits for it, as for a worker of a DataLoader.
class PythonPlace {
 public:
  void enter() {
    const auto& python = PythonCalls::get();
    if (!python.running()) return;
    lock_ = python.ensure();
    kept_ = python.save();
  }
  // No destructor: it does not come back where Python is about to end.
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
