// dlaunch.Memory, which alloc() returns: memory for arrays.
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_memory_type = nullptr;

namespace {

int get_buffer(PyObject* self, Buffer* buffer, int flags) {
  auto& memory = parts_of<MemoryParts>(self);
  buffer->obj = nullptr;
  if (memory.memory == nullptr) {
    PyErr_SetString(PyExc_BufferError, "this memory has been freed");
    return -1;
  }
  static char format[] = "B";
  buffer->buf = memory.memory;
  buffer->len = memory.bytes;
  buffer->itemsize = 1;
  buffer->readonly = 0;
  buffer->ndim = 1;
  buffer->format = (flags & kBufferFormat) != 0 ? format : nullptr;
  buffer->shape = (flags & kBufferShape) != 0 ? &memory.bytes : nullptr;
  buffer->strides = (flags & kBufferStrides) == kBufferStrides ? &buffer->itemsize : nullptr;
  buffer->suboffsets = nullptr;
  buffer->internal = nullptr;
  Py_INCREF(self);
  buffer->obj = self;
  ++memory.exports;
  return 0;
}
void release_buffer(PyObject* self, Buffer*) { --parts_of<MemoryParts>(self).exports; }

Py_ssize_t length(PyObject* self) { return parts_of<MemoryParts>(self).bytes; }

}  // namespace

PyTypeObject* make_memory_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<MemoryParts>)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {kSlotGetBuffer, reinterpret_cast<void*>(get_buffer)},
      {kSlotReleaseBuffer, reinterpret_cast<void*>(release_buffer)},
      {Py_mp_length, reinterpret_cast<void*>(length)},
      {Py_tp_doc,
       const_cast<char*>(
           "Memory that the ranks of this host read directly. Give it to numpy.frombuffer().")},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch.Memory", sizeof(Object<MemoryParts>), 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyObject* new_memory(const std::shared_ptr<Handle>& handle, void* memory, Py_ssize_t bytes) {
  handle->add_memory();
  return new_object(g_memory_type, MemoryParts(handle, memory, bytes));
}

}  // namespace dlaunch::python
