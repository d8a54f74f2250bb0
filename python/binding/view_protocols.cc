// DLPack and the two array interfaces, whose own data describe the memory.
#include <cstdint>
#include <cstring>

#include "python/binding/view.h"

namespace dlaunch::python {
namespace {

// https://dmlc.github.io/dlpack/latest/c_api.html
struct DlpackTensor {
  void* data;
  std::int32_t device_type, device_id;
  std::int32_t dimensions;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: C-contiguous
  std::uint64_t byte_offset;
};
struct DlpackVersioned {
  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(void*);
  std::uint64_t flags;
  DlpackTensor tensor;
};
constexpr std::uint64_t kDlpackReadOnly = 1;
constexpr int kDlpackHost = 1, kDlpackCuda = 2, kDlpackCudaHost = 3, kDlpackCudaManaged = 13;

// The attribute, or nothing. Exceptions other than AttributeError remain.
Ref attribute_of(PyObject* object, const char* name) {
  Ref value = Ref::owned(PyObject_GetAttrString(object, name));
  if (!value && PyErr_ExceptionMatches(PyExc_AttributeError) != 0) PyErr_Clear();
  return value;
}

// The result of __dlpack_device__(); -1: sets an exception.
long dlpack_device_type(PyObject* object) {
  const Ref device = Ref::owned(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  if (!device) return -1;
  const Ref type = Ref::owned(PySequence_GetItem(device.get(), 0));
  return type ? PyLong_AsLong(type.get()) : -1;
}

Ref call_dlpack(PyObject* method, bool on_gpu) {
  const Ref nothing = Ref::owned(PyTuple_New(0));
  // The stream is the legacy default one, which all other streams of CUDA synchronize with.
  const Ref words = Ref::owned(on_gpu ? Py_BuildValue("{s(ii)si}", "max_version", 1, 0, "stream", 1)
                                      : Py_BuildValue("{s(ii)}", "max_version", 1, 0));
  if (!nothing || !words) return {};
  Ref capsule = Ref::owned(PyObject_Call(method, nothing.get(), words.get()));
  if (capsule || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return capsule;
  PyErr_Clear();  // a version of DLPack before 1
  if (PyDict_DelItemString(words.get(), "max_version") != 0) return {};
  return Ref::owned(PyObject_Call(method, nothing.get(), words.get()));
}

// Arrays of JAX never change, but DLPack before version 1 cannot say so.
bool is_of_jax(PyObject* object) {
  const Ref module = attribute_of(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__module__");
  if (!module || PyUnicode_Check(module.get()) == 0) {
    PyErr_Clear();
    return false;
  }
  const Ref text = Ref::owned(PyUnicode_AsUTF8String(module.get()));
  if (!text) PyErr_Clear();
  const char* const name = text ? PyBytes_AsString(text.get()) : "";
  return std::strncmp(name, "jax", 3) == 0;
}

Ref utf8_of(PyObject* dict, const char* key) {
  PyObject* const text = PyDict_GetItemString(dict, key);
  if (text == nullptr || PyUnicode_Check(text) == 0) return {};
  return Ref::owned(PyUnicode_AsUTF8String(text));
}

bool numbers_of(PyObject* tuple, std::vector<Py_ssize_t>& numbers) {
  if (tuple == nullptr || PyTuple_Check(tuple) == 0) return false;
  const Py_ssize_t size = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Py_ssize_t number = PyNumber_AsSsize_t(PyTuple_GetItem(tuple, i), PyExc_OverflowError);
    if (number == -1 && PyErr_Occurred() != nullptr) return false;
    numbers.push_back(number);
  }
  return size <= 64;
}

std::optional<Element> described_element(PyObject* object, PyObject* description) {
  const Ref typestr = utf8_of(description, "typestr");
  if (!typestr) return std::nullopt;
  const char* const text = PyBytes_AsString(typestr.get());
  const auto element = element_of_typestr(text);
  constexpr Element kTiny{Element::Kind::real, 1};  // has several formats, with names
  if (element && *element != kTiny) return element;
  const Ref dtype = attribute_of(object, "dtype");
  const Ref name = dtype ? attribute_of(dtype.get(), "name") : Ref();
  const Ref bytes = name && PyUnicode_Check(name.get()) != 0
                        ? Ref::owned(PyUnicode_AsUTF8String(name.get()))
                        : Ref();
  PyErr_Clear();
  if (!bytes || std::strlen(text) != 3 || (!element && text[1] != 'V')) return std::nullopt;
  return element_of_name(PyBytes_AsString(bytes.get()), static_cast<std::size_t>(text[2] - '0'));
}

}  // namespace

View::Took View::take_dlpack(PyObject* object, Use use, Named named) {
  const Ref method = attribute_of(object, "__dlpack__");
  if (!method) return PyErr_Occurred() != nullptr ? Took::failed : Took::not_it;
  const long device = dlpack_device_type(object);
  if (device == -1 && PyErr_Occurred() != nullptr) return Took::failed;
  const bool on_gpu = device == kDlpackCuda || device == kDlpackCudaManaged;
  if (!on_gpu && device != kDlpackHost && device != kDlpackCudaHost) {
    PyErr_Format(PyExc_ValueError,
                 "%s: %s is on a device of DLPack's type %ld: give memory of the host or of CUDA",
                 named.call, named.argument, device);
    return Took::failed;
  }
  owner_ = call_dlpack(method.get(), on_gpu);
  if (!owner_) return Took::failed;
  const DlpackTensor* tensor = nullptr;
  bool readonly = false;
  if (PyCapsule_IsValid(owner_.get(), "dltensor_versioned") != 0) {
    const auto* const versioned =
        static_cast<DlpackVersioned*>(PyCapsule_GetPointer(owner_.get(), "dltensor_versioned"));
    if (versioned->major == 1) tensor = &versioned->tensor;
    readonly = tensor != nullptr && (versioned->flags & kDlpackReadOnly) != 0;
  } else if (PyCapsule_IsValid(owner_.get(), "dltensor") != 0) {
    tensor = static_cast<DlpackTensor*>(PyCapsule_GetPointer(owner_.get(), "dltensor"));
    readonly = use == Use::write && is_of_jax(object);
  }
  if (tensor == nullptr || tensor->dimensions < 0 || tensor->dimensions > 64) {
    PyErr_Format(PyExc_TypeError, "%s: %s: its __dlpack__() gives no capsule that can be read",
                 named.call, named.argument);
    return Took::failed;
  }
  const auto element = element_of_dlpack(tensor->code, tensor->bits, tensor->lanes);
  if (!element) {
    PyErr_Format(PyExc_TypeError, "%s: %s has elements that libdlring does not take", named.call,
                 named.argument);
    return Took::failed;
  }
  own_shape_.assign(tensor->shape, tensor->shape + tensor->dimensions);
  if (tensor->strides != nullptr) {
    for (int d = 0; d < tensor->dimensions; ++d) {
      // A stride that would overflow is not contiguous.
      own_strides_.push_back(tensor->strides[d] > PY_SSIZE_T_MAX / 64
                                 ? -1
                                 : tensor->strides[d] * static_cast<Py_ssize_t>(element->bytes));
    }
  }
  const Claim claim{.data = static_cast<char*>(tensor->data) + tensor->byte_offset,
                    .dimensions = tensor->dimensions,
                    .shape = own_shape_.data(),
                    .strides = tensor->strides == nullptr ? nullptr : own_strides_.data(),
                    .element = *element,
                    .readonly = readonly,
                    .on_gpu = on_gpu};
  return accept(claim, use, named) ? Took::it : Took::failed;
}

View::Took View::take_interface(PyObject* object, const char* attribute, Use use, Named named) {
  Ref description = attribute_of(object, attribute);
  if (!description) return PyErr_Occurred() != nullptr ? Took::failed : Took::not_it;
  if (PyDict_Check(description.get()) == 0) {
    PyErr_Format(PyExc_TypeError, "%s: %s: its %s is no dict", named.call, named.argument,
                 attribute);
    return Took::failed;
  }
  const bool on_gpu = std::strcmp(attribute, "__cuda_array_interface__") == 0;
  described_ = std::move(description);
  if (!owner_) owner_ = Ref::of(object);
  return take_description(object, described_.get(), on_gpu, use, named) ? Took::it : Took::failed;
}

bool View::take_description(PyObject* object, PyObject* description, bool on_gpu, Use use,
                            Named named) {
  const auto element = described_element(object, description);
  if (!element) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError,
                 "%s: %s has elements that libdlring does not take: give numbers in this machine's "
                 "byte order, or a view of the array as bytes",
                 named.call, named.argument);
    return false;
  }
  // Owned: a number's __index__ may change the dict.
  const Ref shape = Ref::of(PyDict_GetItemString(description, "shape"));
  const Ref strides = Ref::of(PyDict_GetItemString(description, "strides"));
  PyObject* const mask = PyDict_GetItemString(description, "mask");
  const bool has_mask = mask != nullptr && mask != Py_None;
  const bool has_strides = strides && strides.get() != Py_None;
  own_shape_.clear();
  if (has_mask || !numbers_of(shape.get(), own_shape_) ||
      (has_strides && !numbers_of(strides.get(), own_strides_)) ||
      (has_strides && own_strides_.size() != own_shape_.size())) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s: %s has no valid shape and strides, or a mask", named.call,
                 named.argument);
    return false;
  }
  Claim claim{.dimensions = static_cast<int>(own_shape_.size()),
              .shape = own_shape_.data(),
              .strides = has_strides ? own_strides_.data() : nullptr,
              .element = *element,
              .on_gpu = on_gpu};
  return take_pointer(description, claim, named) && accept(claim, use, named);
}

bool View::take_pointer(PyObject* description, Claim& claim, Named named) {
  PyObject* const data = PyDict_GetItemString(description, "data");
  if (data == nullptr || PyTuple_Check(data) == 0 || PyTuple_Size(data) != 2) {
    PyErr_Format(PyExc_TypeError, "%s: %s: its array interface has no data (address, read-only)",
                 named.call, named.argument);
    return false;
  }
  claim.data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  if (claim.data == nullptr && PyErr_Occurred() != nullptr) return false;
  const int readonly = PyObject_IsTrue(PyTuple_GetItem(data, 1));
  if (readonly < 0) return false;
  claim.readonly = readonly != 0;
  return true;
}

}  // namespace dlaunch::python
