// dlaunch._core.State: <dlaunch/elastic.h> for dlaunch.elastic, which has the manual.
#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_state_type = nullptr;

namespace {

using StateObject = StateObjectParts;

PyObject* raise_of(const StateObject& object, dl_result result) {
  return raise_error(result, dl_state_last_error(object.parts->state),
                     dl_peer_lost(object.handle->comm()));
}

// Calls call(state), one thread at a time.
template <class Call>
PyObject* of_state(PyObject* self, const char* name, Call call) {
  return contained([&]() -> PyObject* {
    auto& object = parts_of<StateObject>(self);
    const Entered entered(*object.handle, name);
    return entered ? call(object) : nullptr;
  });
}
// The same; other threads run meanwhile.
template <class Call>
PyObject* by_library(PyObject* self, const char* name, Call call) {
  return of_state(self, name, [&](StateObject& object) -> PyObject* {
    const dl_result result = beside_others([&] { return call(object.parts->state); });
    return result == DL_OK ? none() : raise_of(object, result);
  });
}

// Calls tell(state, name, array) for an array, which the state keeps.
template <class Tell>
PyObject* with_memory(PyObject* self, const Signature& signature, PyObject* const* args,
                      Py_ssize_t count, PyObject* names, Tell tell) {
  return of_state(self, signature.call, [&](StateObject& object) -> PyObject* {
    Given given;
    Ref kept;
    const char* name = "";
    if (!parse(signature, args, count, names, given) ||
        !text(signature.call, "name", given[0], kept, name)) {
      return nullptr;
    }
    OwnArray& array = object.parts->memory.emplace_back();
    array.comm = object.handle->comm();
    if (!array.view.take(given[1], Use::write, {"State", name})) {
      object.parts->memory.pop_back();
      return nullptr;
    }
    const dl_result result = tell(object.parts->state, name, array);
    if (result == DL_OK) return none();
    object.parts->memory.pop_back();
    return raise_of(object, result);
  });
}
PyObject* replicated(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return with_memory(self, {"replicated", {"name", "array"}, 2, 2}, args, count, names,
                     [](dl_state* state, const char* name, const OwnArray& array) {
                       return dl_state_replicated(state, name, array.view.data(),
                                                  array.view.bytes());
                     });
}

// -- Bytes that each rank has for itself, under one name.

constexpr const char* kOwn = "_own";

// Deals the old ranks' bytes to the new ranks in turn, so that none are lost. Those of this rank's
// own number come first.
dl_result put_together(void* user, const dl_shards* old, int rank, int size, void** at,
                       std::size_t* bytes) {
  auto& own = *static_cast<OwnBytes*>(user);
  std::vector<std::byte> made;
  try {
    for (int i = 0; i < old->size; ++i) {
      if (i % size != rank) continue;
      const auto* first = static_cast<const std::byte*>(old->at[i]);
      made.insert(made.end(), first, first + old->bytes[i]);
    }
  } catch (const std::bad_alloc&) {
    return DL_ERR_IO;
  }
  own.made = std::move(made);
  own.at = *at = own.made.data();
  own.bytes = *bytes = own.made.size();
  return DL_OK;
}

// Makes the array's bytes this rank's, once tell(state, own, at, bytes) has informed libdlelastic.
template <class Tell>
PyObject* take_own(PyObject* self, PyObject* array, const char* name, Tell tell) {
  return of_state(self, name, [&](StateObject& object) -> PyObject* {
    OwnBytes& own = object.parts->own;
    std::list<View> taken(1);
    View& view = taken.front();
    if (!view.take(array, Use::write, {name, "array"})) return nullptr;
    const dl_result result = tell(object.parts->state, own, view.data(), view.bytes());
    if (result != DL_OK) return raise_of(object, result);
    own.array.swap(taken);
    own.made = {};
    own.at = view.data();
    own.bytes = view.bytes();
    return none();
  });
}
PyObject* keep_own(PyObject* self, PyObject* array) {
  return take_own(self, array, "keep_own",
                  [](dl_state* state, OwnBytes& own, void* at, std::size_t bytes) {
                    return dl_state_sharded(state, kOwn, at, bytes, 1, put_together, &own);
                  });
}
PyObject* set_own(PyObject* self, PyObject* array) {
  return take_own(self, array, "set_own",
                  [](dl_state* state, const OwnBytes&, void* at, std::size_t bytes) {
                    return dl_state_place_shard(state, kOwn, at, bytes);
                  });
}

PyObject* own(PyObject* self, void*) {
  return of_state(self, "own", [](const StateObject& object) {
    const OwnBytes& own = object.parts->own;
    return PyByteArray_FromStringAndSize(static_cast<const char*>(own.at),
                                         static_cast<Py_ssize_t>(own.bytes));
  });
}

// -- Arrays that differ between ranks and stay where they are.

// A rank with a new number begins with a copy of another's.
dl_result take_over(void* user, const dl_shards* old, int rank, int, void** at,
                    std::size_t* bytes) {
  const auto& [view, comm] = *static_cast<OwnArray*>(user);
  const int from = rank % old->size;
  if (old->bytes[from] != view.bytes()) return DL_ERR_MISMATCH;
  *at = view.data();
  *bytes = view.bytes();
  return dl_copy(comm, view.data(), old->at[from], view.bytes());
}
PyObject* own_array(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return with_memory(self, {"own_array", {"name", "array"}, 2, 2}, args, count, names,
                     [](dl_state* state, const char* name, OwnArray& array) {
                       return dl_state_sharded(state, name, array.view.data(), array.view.bytes(),
                                               array.view.element().bytes, take_over, &array);
                     });
}

constexpr Signature kSnapshots{"snapshots", {"folder", "every", "keep"}, 3, 3};
PyObject* snapshots(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return of_state(self, "snapshots", [&](StateObject& object) -> PyObject* {
    Given given;
    Ref kept;
    const char* folder = "";
    int every = 1, keep = 1;
    if (!parse(kSnapshots, args, count, names, given) ||
        !text("snapshots", "folder", given[0], kept, folder) ||
        !integer("snapshots", "every", given[1], every) ||
        !integer("snapshots", "keep", given[2], keep)) {
      return nullptr;
    }
    const dl_result result = dl_state_snapshots(object.parts->state, folder, every, keep);
    return result == DL_OK ? none() : raise_of(object, result);
  });
}

PyObject* sync_state(PyObject* self, PyObject*) { return by_library(self, "sync", dl_state_sync); }
PyObject* commit(PyObject* self, PyObject*) {
  return by_library(self, "commit", [](dl_state* state) { return dl_state_commit(state, 0); });
}
PyObject* restore(PyObject* self, PyObject*) {
  return by_library(self, "restore", dl_state_restore);
}
PyObject* finish(PyObject* self, PyObject*) { return by_library(self, "finish", dl_state_finish); }

PyObject* recover(PyObject* self, PyObject*) {
  return contained([&]() -> PyObject* {
    auto& object = parts_of<StateObject>(self);
    Handle& handle = *object.handle;
    if (!handle.leave_round("recover")) return nullptr;
    const dl_result result = beside_others([&] { return dl_state_recover(object.parts->state); });
    // dl_rejoin() has ended pending operations. Before it a receive may wait for as long as its
    // limit.
    if (result == DL_OK) handle.settle();
    handle.enter_round();
    learn_place(object.communicator.get());
    return result == DL_OK ? none() : raise_of(object, result);
  });
}

PyObject* round_over(PyObject* self, void*) {
  return of_state(self, "round_over", [](const StateObject& object) {
    return PyBool_FromLong(dl_state_round_over(object.parts->state));
  });
}
PyObject* commits(PyObject* self, void*) {
  return of_state(self, "commits", [](const StateObject& object) {
    return PyLong_FromUnsignedLongLong(dl_state_committed(object.parts->state).number);
  });
}

// -- Samplers, by their number.

constexpr Signature kSampler{"sampler", {"name", "samples", "batch", "seed"}, 4, 4};
PyObject* sampler(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return of_state(self, "sampler", [&](StateObject& object) -> PyObject* {
    Given given;
    Ref kept;
    const char* name = "";
    if (!parse(kSampler, args, count, names, given) ||
        !text("sampler", "name", given[0], kept, name)) {
      return nullptr;
    }
    unsigned long long numbers[3];
    for (int i = 0; i < 3; ++i) {
      numbers[i] = PyLong_AsUnsignedLongLong(given[i + 1]);
      if (PyErr_Occurred() != nullptr) return nullptr;
    }
    object.parts->samplers.reserve(object.parts->samplers.size() + 1);
    dl_sampler* made = nullptr;
    const dl_result result =
        dl_sampler_new(object.parts->state, name, numbers[0], numbers[1], numbers[2], &made);
    if (result != DL_OK) return raise_of(object, result);
    object.parts->samplers.push_back(made);
    return PyLong_FromSize_t(object.parts->samplers.size() - 1);
  });
}

// Calls call(sampler) for the sampler of the given number.
template <class Call>
PyObject* of_sampler(PyObject* self, PyObject* number, const char* name, Call call) {
  return of_state(self, name, [&](StateObject& object) -> PyObject* {
    const std::size_t index = PyLong_AsSize_t(number);
    if (PyErr_Occurred() != nullptr) return nullptr;
    if (index >= object.parts->samplers.size()) {
      PyErr_SetString(PyExc_IndexError, "there is no such sampler");
      return nullptr;
    }
    return call(object, object.parts->samplers[index]);
  });
}
PyObject* sampler_next(PyObject* self, PyObject* number) {
  return of_sampler(self, number, "sampler_next",
                    [](StateObject& object, dl_sampler* it) -> PyObject* {
                      const std::uint32_t* indices = nullptr;
                      std::size_t own = 0, all = 0;
                      const dl_result result = dl_sampler_next(it, &indices, &own, &all);
                      if (result != DL_OK) return raise_of(object, result);
                      return Py_BuildValue("y#n", reinterpret_cast<const char*>(indices),
                                           static_cast<Py_ssize_t>(own * sizeof *indices),
                                           static_cast<Py_ssize_t>(all));
                    });
}
// The same with another number: call(object, sampler, value).
template <class Call>
PyObject* of_sampler_and_number(const Signature& signature, PyObject* self, PyObject* const* args,
                                Py_ssize_t count, PyObject* names, Call call) {
  Given given;
  int value = 0;
  if (!parse(signature, args, count, names, given) ||
      !integer(signature.call, signature.names[1], given[1], value)) {
    return nullptr;
  }
  return of_sampler(self, given[0], signature.call, [&](const StateObject& object, dl_sampler* it) {
    return call(object, it, value);
  });
}
constexpr Signature kSamplerSetShards{"sampler_set_shards", {"number", "shards"}, 2, 2};
PyObject* sampler_set_shards(PyObject* self, PyObject* const* args, Py_ssize_t count,
                             PyObject* names) {
  return of_sampler_and_number(
      kSamplerSetShards, self, args, count, names,
      [](const StateObject& object, dl_sampler* it, int shards) -> PyObject* {
        const dl_result result = dl_sampler_set_shards(it, shards);
        return result == DL_OK ? none() : raise_of(object, result);
      });
}
constexpr Signature kSamplerShard{"sampler_shard", {"number", "shard"}, 2, 2};
PyObject* sampler_shard(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return of_sampler_and_number(
      kSamplerShard, self, args, count, names,
      [](const StateObject& object, dl_sampler* it, int shard) -> PyObject* {
        const std::uint32_t* indices = nullptr;
        std::size_t own = 0;
        const dl_result result = dl_sampler_shard(it, shard, &indices, &own);
        if (result != DL_OK) return raise_of(object, result);
        return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(indices),
                                         static_cast<Py_ssize_t>(own * sizeof *indices));
      });
}
PyObject* sampler_place(PyObject* self, PyObject* number) {
  return of_sampler(self, number, "sampler_place", [](const StateObject&, const dl_sampler* it) {
    return Py_BuildValue("KK", static_cast<unsigned long long>(dl_sampler_epoch(it)),
                         static_cast<unsigned long long>(dl_sampler_position(it)));
  });
}

PyMethodDef g_state_methods[] = {
    {"replicated", as_method(replicated), kMethod, nullptr},
    {"own_array", as_method(own_array), kMethod, nullptr},
    {"keep_own", keep_own, METH_O, nullptr},
    {"set_own", set_own, METH_O, nullptr},
    {"snapshots", as_method(snapshots), kMethod, nullptr},
    {"sync", sync_state, METH_NOARGS, nullptr},
    {"commit", commit, METH_NOARGS, nullptr},
    {"restore", restore, METH_NOARGS, nullptr},
    {"recover", recover, METH_NOARGS, nullptr},
    {"finish", finish, METH_NOARGS, nullptr},
    {"sampler", as_method(sampler), kMethod, nullptr},
    {"sampler_next", sampler_next, METH_O, nullptr},
    {"sampler_set_shards", as_method(sampler_set_shards), kMethod, nullptr},
    {"sampler_shard", as_method(sampler_shard), kMethod, nullptr},
    {"sampler_place", sampler_place, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef g_state_attributes[] = {
    {"round_over", round_over, nullptr, nullptr, nullptr},
    {"commits", commits, nullptr, nullptr, nullptr},
    {"own", own, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

PyTypeObject* make_state_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<StateObject>)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {Py_tp_methods, g_state_methods},
      {Py_tp_getset, g_state_attributes},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch._core.State", sizeof(Object<StateObject>), 0, Py_TPFLAGS_DEFAULT,
                   slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

constexpr Signature kState{"State", {"communicator", "commit_every", "shard_replicas"}, 1, 3};
PyObject* new_state(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    dl_state_options options;
    dl_state_options_init(&options);
    if (!parse(kState, args, count, names, given) ||
        !integer("State", "commit_every", given[1], options.commit_every) ||
        !integer("State", "shard_replicas", given[2], options.shard_replicas)) {
      return nullptr;
    }
    if (Py_TYPE(given[0]) != g_communicator_type) {
      PyErr_SetString(PyExc_TypeError, "State: communicator must be a dlaunch.Communicator");
      return nullptr;
    }
    const auto handle = parts_of<CommunicatorParts>(given[0]).handle;
    const Entered entered(*handle, "State");
    if (!entered) return nullptr;
    auto parts = std::make_shared<StateParts>();
    Ref object = Ref::owned(new_object(g_state_type, StateObjectParts(given[0], handle)));
    if (!object) return nullptr;
    const dl_result result = dl_state_new(handle->comm(), &options, &parts->state);
    if (result != DL_OK) return raise_error(result, dl_state_last_error(nullptr), -1);
    handle->add_state(parts);
    parts_of<StateObject>(object.get()).parts = parts;
    return object.release();
  });
}

}  // namespace dlaunch::python
