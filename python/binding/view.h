// The checked memory of an array of Python. While it exists nothing can free or move the memory.
#pragma once

#include <cstddef>
#include <vector>

#include "python/binding/element.h"
#include "python/binding/limited.h"

namespace dlaunch::python {

enum class Use { read, write };

// The argument's name in errors: "all_reduce: out …".
struct Named {
  const char* call;
  const char* argument;
};

// An exception that is put aside, and perhaps raised later.
class Refusal {
 public:
  void take() {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    type_ = Ref::owned(type);
    value_ = Ref::owned(value);
    trace_ = Ref::owned(trace);
  }
  explicit operator bool() const { return bool(type_); }
  // False if there is none.
  bool restore() {
    if (!type_) return false;
    PyErr_Restore(type_.release(), value_.release(), trace_.release());
    return true;
  }

 private:
  Ref type_, value_, trace_;
};

// Must not move: an exporter of a buffer may point into it.
class View {
 public:
  View() = default;
  ~View() { drop(); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  // Takes the buffer protocol if the object has it; else DLPack, __cuda_array_interface__ or
  // __array_interface__. False: sets an exception, because the object is not an array, is not
  // C-contiguous or aligned, or cannot be written.
  bool take(PyObject* object, Use use, Named named);
  void drop();

  [[nodiscard]] bool taken() const { return taken_; }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return count_ * element_.bytes; }
  [[nodiscard]] std::size_t count() const { return count_; }  // elements
  [[nodiscard]] Element element() const { return element_; }
  [[nodiscard]] int gpu() const { return gpu_; }  // -1: host memory
  [[nodiscard]] int dimensions() const { return dimensions_; }
  [[nodiscard]] Py_ssize_t extent(int dimension) const { return shape_[dimension]; }

 private:
  enum class Took { it, not_it, failed };
  // A protocol's description of the memory, before the checks.
  struct Claim {
    void* data = nullptr;
    int dimensions = 0;
    const Py_ssize_t* shape = nullptr;
    const Py_ssize_t* strides = nullptr;  // in bytes; null: C-contiguous
    Element element;
    bool readonly = false;
    bool on_gpu = false;
  };

  // refusal: the exporter's own exception, if another protocol may have the memory.
  Took take_buffer(PyObject* object, Use use, Named named, Refusal& refusal);
  Took take_dlpack(PyObject* object, Use use, Named named);
  Took take_interface(PyObject* object, const char* attribute, Use use, Named named);
  bool take_description(PyObject* object, PyObject* description, bool on_gpu, Use use, Named named);
  bool take_pointer(PyObject* description, Claim& claim, Named named);
  bool accept(const Claim& claim, Use use, Named named);

  bool taken_ = false;
  bool has_buffer_ = false;
  Buffer buffer_{};
  Ref owner_;  // any other owner of the memory
  Ref described_;
  void* data_ = nullptr;
  std::size_t count_ = 0;
  Element element_;
  int gpu_ = -1;
  int dimensions_ = 0;
  const Py_ssize_t* shape_ = nullptr;
  std::vector<Py_ssize_t> own_shape_, own_strides_;
};

}  // namespace dlaunch::python
