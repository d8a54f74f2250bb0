// The types of this module: the contents of their objects, and how to make them.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <dlaunch/sites.h>

#include "python/binding/call.h"
#include "python/binding/handle.h"
#include "python/binding/limited.h"

namespace dlaunch::python {

// An object of a heap type, with C++ parts.
template <class Parts>
struct Object {
  PyObject base;
  Parts* parts;  // null only if its construction failed
};

struct CommunicatorParts {
  std::shared_ptr<Handle> handle;
  int rank = 0, size = 0;
};
struct RequestParts {
  std::shared_ptr<Handle> handle;
  std::shared_ptr<Operation> operation;
  const Collective* collective = nullptr;
};
struct BatchParts {
  std::shared_ptr<Handle> handle;
};
// A call that is made many times, with its arrays.
struct PersistentParts {
  PersistentParts(std::shared_ptr<Handle> of, std::unique_ptr<Call> its_call,
                  const Collective* its_collective, dl_persistent* of_library)
      : handle(std::move(of)),
        call(std::move(its_call)),
        collective(its_collective),
        made(of_library) {}
  PersistentParts(PersistentParts&& other) noexcept
      : handle(std::move(other.handle)),
        call(std::move(other.call)),
        collective(other.collective),
        made(std::exchange(other.made, nullptr)) {}
  PersistentParts& operator=(PersistentParts&&) = delete;
  ~PersistentParts() { dl_persistent_free(made); }
  std::shared_ptr<Handle> handle;
  std::unique_ptr<Call> call;
  const Collective* collective;
  dl_persistent* made;
};
struct MemoryParts {
  MemoryParts(std::shared_ptr<Handle> of, void* at, Py_ssize_t size)
      : handle(std::move(of)), memory(at), bytes(size) {}
  MemoryParts(MemoryParts&& other) noexcept
      : handle(std::move(other.handle)),
        memory(std::exchange(other.memory, nullptr)),
        bytes(other.bytes) {}
  MemoryParts& operator=(MemoryParts&&) = delete;
  // The memory itself ends with its communicator: all ranks free it at the same place, or none
  // does.
  ~MemoryParts() {
    if (memory != nullptr) handle->drop_memory();
  }
  std::shared_ptr<Handle> handle;
  void* memory;  // null once it has been freed
  Py_ssize_t bytes;
  int exports = 0;
};
// An operation of libdlring for an Op, which one call at a time uses: what the function raises
// belongs to that call.
struct OpUse {
  OpUse() = default;
  ~OpUse() {
    if (op != DL_OP_ANY_INT) dl_op_free(op);
  }
  OpUse(const OpUse&) = delete;
  OpUse& operator=(const OpUse&) = delete;

  dl_op op = DL_OP_ANY_INT;
  PyObject* function = nullptr;  // the Op's
  bool busy = false;
  Refusal raised;
};
struct OpParts {
  [[nodiscard]] dl_op any_op() const { return uses.front().op; }
  Ref function;  // none: a sum of products, or its object is being freed
  int commutes = 0;
  std::list<OpUse> uses;  // as many as calls at a time, and at least one
};
struct StateObjectParts {
  StateObjectParts(PyObject* of, std::shared_ptr<Handle> its_handle)
      : communicator(Ref::of(of)), handle(std::move(its_handle)) {}
  StateObjectParts(StateObjectParts&&) = default;
  StateObjectParts& operator=(StateObjectParts&&) = delete;
  ~StateObjectParts() {
    if (parts) handle->drop_state(parts);
  }
  Ref communicator;  // its rank and size change with the rounds
  std::shared_ptr<Handle> handle;
  std::shared_ptr<StateParts> parts;
};

// Sites, which end with their last object or by close().
struct SitesParts {
  SitesParts(std::shared_ptr<Handle> of, dl_sites* made) : handle(std::move(of)), sites(made) {}
  SitesParts(SitesParts&& other) noexcept
      : handle(std::move(other.handle)), sites(std::exchange(other.sites, nullptr)) {}
  SitesParts& operator=(SitesParts&&) = delete;
  ~SitesParts() {
    if (sites != nullptr) beside_others([this] { dl_sites_close(sites); });
  }
  std::shared_ptr<Handle> handle;
  dl_sites* sites;
};

// An outer optimizer and its tensors. Its memory stays when the communicator has ended.
struct OuterParts {
  OuterParts(std::shared_ptr<Handle> of, std::unique_ptr<std::list<View>> its_tensors,
             dl_outer* made, Ref its_sites)
      : handle(std::move(of)),
        tensors(std::move(its_tensors)),
        sites(std::move(its_sites)),
        outer(made) {
    handle->add_outer(outer);
  }
  OuterParts(OuterParts&& other) noexcept
      : handle(std::move(other.handle)),
        tensors(std::move(other.tensors)),
        sites(std::move(other.sites)),
        outer(std::exchange(other.outer, nullptr)) {}
  OuterParts& operator=(OuterParts&&) = delete;
  ~OuterParts() {
    if (outer != nullptr) handle->free_outer({outer, std::move(tensors), std::move(sites)});
  }
  std::shared_ptr<Handle> handle;
  std::unique_ptr<std::list<View>> tensors;
  Ref sites;  // or none; they end after it
  dl_outer* outer;
};

template <class Parts>
Parts& parts_of(PyObject* object) {
  return *reinterpret_cast<Object<Parts>*>(object)->parts;
}

// A new object of this type; null: sets an exception.
template <class Parts>
PyObject* new_object(PyTypeObject* type, Parts&& parts) {
  PyObject* const object = PyType_GenericAlloc(type, 0);
  if (object == nullptr) return nullptr;
  auto* const made = reinterpret_cast<Object<std::decay_t<Parts>>*>(object);
  made->parts = new (std::nothrow) std::decay_t<Parts>(std::forward<Parts>(parts));
  if (made->parts != nullptr) return object;
  Py_DECREF(object);
  return PyErr_NoMemory();
}
template <class Parts>
void delete_object(PyObject* object) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyTypeObject* const its_type = Py_TYPE(object);
  delete reinterpret_cast<Object<Parts>*>(object)->parts;
  reinterpret_cast<freefunc>(PyType_GetSlot(its_type, Py_tp_free))(object);
  Py_DECREF(its_type);
  PyErr_Restore(type, value, traceback);
}

// tp_new of types whose objects only this module makes.
PyObject* refuse_new(PyTypeObject* type, PyObject* args, PyObject* words);

// A method that takes arguments by position and by name.
using Method = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);
constexpr int kMethod = kFastCall | METH_KEYWORDS;
inline PyCFunction as_method(Method method) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method));
}

extern PyTypeObject* g_communicator_type;
extern PyTypeObject* g_request_type;
extern PyTypeObject* g_memory_type;
extern PyTypeObject* g_state_type;
extern PyTypeObject* g_op_type;
extern PyTypeObject* g_batch_type;
extern PyTypeObject* g_persistent_type;
extern PyTypeObject* g_outer_type;
extern PyTypeObject* g_sites_type;
PyTypeObject* make_communicator_type();
PyTypeObject* make_request_type();
PyTypeObject* make_memory_type();
PyTypeObject* make_state_type();
PyTypeObject* make_op_type();
PyTypeObject* make_outer_type();
PyTypeObject* make_batch_type();
PyTypeObject* make_persistent_type();
PyTypeObject* make_sites_type();

// owner: as Handle's.
PyObject* new_communicator(dl_comm* comm, Ref owner = {});
// Updates rank and size, which may change with the round.
void learn_place(PyObject* communicator);
// Starts the call in the background and returns its Request.
PyObject* start(const std::shared_ptr<Handle>& handle, const Collective& collective,
                const Given& given);
// A call within the batch that is open.
PyObject* add_to_batch(Handle& handle, const Collective& collective, const Given& given);
PyObject* new_batch(PyObject* communicator, PyObject*);
PyObject* new_persistent(const std::shared_ptr<Handle>& handle, const Collective& collective,
                         const Given& given);
PyObject* new_memory(const std::shared_ptr<Handle>& handle, void* memory, Py_ssize_t bytes);

// Functions of the module.
PyObject* init(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* borrow(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* wait_any(PyObject*, PyObject* requests);
PyObject* measure(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* spent(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* report_progress(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* premul_sum(PyObject*, PyObject* given);
PyObject* new_outer(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* new_sites(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* read_journal(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);
PyObject* new_state(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names);

}  // namespace dlaunch::python
