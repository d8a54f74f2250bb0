#include "python/binding/view.h"

#include <cstdint>

namespace dlaunch::python {
namespace {

// The number of elements of an array of this shape; -1: the shape is invalid.
Py_ssize_t elements(const Py_ssize_t* shape, int dimensions, std::size_t element_bytes) {
  const Py_ssize_t most = PY_SSIZE_T_MAX / static_cast<Py_ssize_t>(element_bytes);
  Py_ssize_t count = 1;
  bool empty = false;
  for (int d = 0; d < dimensions; ++d) {
    if (shape[d] < 0) return -1;
    if (shape[d] == 0) {
      empty = true;
    } else if (count > most / shape[d]) {
      return -1;
    } else {
      count *= shape[d];
    }
  }
  return empty ? 0 : count;
}

bool is_contiguous(const Py_ssize_t* shape, const Py_ssize_t* strides, int dimensions,
                   std::size_t element_bytes) {
  auto expected = static_cast<Py_ssize_t>(element_bytes);
  for (int d = dimensions - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

alignas(64) char g_nothing[64];  // the address for arrays without elements

}  // namespace

void View::drop() {
  taken_ = false;
  if (std::exchange(has_buffer_, false)) buffers().release(&buffer_);
  owner_ = Ref();
  described_ = Ref();
}

bool View::take(PyObject* object, Use use, Named named) {
  const bool has_buffer = buffers().check(object) != 0;
  Refusal refusal;
  Took took = has_buffer ? take_buffer(object, use, named, refusal) : Took::not_it;
  if (took == Took::not_it && has_buffer) {  // an array of ml_dtypes, which no format describes
    took = take_interface(object, "__array_interface__", use, named);
  }
  if (took == Took::not_it) took = take_dlpack(object, use, named);
  if (took == Took::not_it) {
    took = take_interface(object, "__cuda_array_interface__", use, named);
  }
  if (took == Took::not_it && !has_buffer) {
    took = take_interface(object, "__array_interface__", use, named);
  }
  if (took == Took::not_it && !refusal.restore()) {
    PyErr_Format(PyExc_TypeError,
                 "%s: %s is %R, which is no array: give a NumPy array, a tensor, or an object with "
                 "the buffer protocol, DLPack, __array_interface__ or __cuda_array_interface__",
                 named.call, named.argument, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  }
  taken_ = took == Took::it;
  if (!taken_) drop();
  return taken_;
}

View::Took View::take_buffer(PyObject* object, Use use, Named named, Refusal& refusal) {
  if (buffers().get(object, &buffer_, kBufferStrides | kBufferFormat) != 0) {
    if (PyErr_ExceptionMatches(PyExc_ValueError) == 0 &&
        PyErr_ExceptionMatches(PyExc_BufferError) == 0) {
      return Took::failed;
    }
    refusal.take();
    return Took::not_it;
  }
  has_buffer_ = true;
  const auto itemsize = static_cast<std::size_t>(buffer_.itemsize);
  const auto element = element_of_format(buffer_.format, itemsize);
  if (!element) {
    PyErr_Format(PyExc_TypeError,
                 "%s: %s has elements of format '%s', which libdlring does not take: give numbers "
                 "in this machine's byte order, or a view of the array as bytes",
                 named.call, named.argument, buffer_.format == nullptr ? "B" : buffer_.format);
    return Took::failed;
  }
  Claim claim{.data = buffer_.buf,
              .dimensions = buffer_.ndim,
              .shape = buffer_.shape,
              .strides = buffer_.strides,
              .element = *element,
              .readonly = buffer_.readonly != 0};
  if (buffer_.shape == nullptr) {  // bytes without a shape
    own_shape_.assign(1, buffer_.len / buffer_.itemsize);
    claim.dimensions = 1;
    claim.shape = own_shape_.data();
    claim.strides = nullptr;
  }
  if (buffer_.suboffsets != nullptr) {
    PyErr_Format(PyExc_BufferError, "%s: %s is not contiguous memory: copy it first", named.call,
                 named.argument);
    return Took::failed;
  }
  return accept(claim, use, named) ? Took::it : Took::failed;
}

bool View::accept(const Claim& claim, Use use, Named named) {
  const Py_ssize_t count = elements(claim.shape, claim.dimensions, claim.element.bytes);
  if (count < 0) {
    PyErr_Format(PyExc_ValueError, "%s: %s has no valid shape", named.call, named.argument);
    return false;
  }
  if (use == Use::write && claim.readonly) {
    PyErr_Format(PyExc_ValueError, "%s: %s is read-only", named.call, named.argument);
    return false;
  }
  if (count > 0 && claim.strides != nullptr &&
      !is_contiguous(claim.shape, claim.strides, claim.dimensions, claim.element.bytes)) {
    PyErr_Format(PyExc_ValueError,
                 "%s: %s is not C-contiguous: give a copy, as by numpy.ascontiguousarray() or "
                 "Tensor.contiguous()",
                 named.call, named.argument);
    return false;
  }
  if (count > 0 &&
      reinterpret_cast<std::uintptr_t>(claim.data) % alignment_of(claim.element) != 0) {
    PyErr_Format(PyExc_ValueError, "%s: %s is not aligned to its %s elements: give a copy",
                 named.call, named.argument, name_of(claim.element));
    return false;
  }
  if (count > 0 && claim.data == nullptr) {
    PyErr_Format(PyExc_ValueError, "%s: %s has no memory", named.call, named.argument);
    return false;
  }
  gpu_ = claim.on_gpu && count > 0 ? dl_gpu_of(claim.data) : -1;
  if (claim.on_gpu && count > 0 && gpu_ < 0) {
    PyErr_Format(PyExc_ValueError, "%s: %s says that it is on a GPU, but its memory is not",
                 named.call, named.argument);
    return false;
  }
  data_ = claim.data == nullptr ? g_nothing : claim.data;
  count_ = static_cast<std::size_t>(count);
  element_ = claim.element;
  dimensions_ = claim.dimensions;
  shape_ = claim.shape;
  return true;
}

}  // namespace dlaunch::python
