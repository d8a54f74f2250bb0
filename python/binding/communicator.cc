// dlaunch.Communicator; see python/dlaunch/_core.pyi for its manual.
#include <cstring>
#include <string>

#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_communicator_type = nullptr;

namespace {

using Parts = CommunicatorParts;

template <const Collective& collective>
PyObject* blocking(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    Handle& handle = *parts_of<Parts>(self).handle;
    if (!parse(collective.signature, args, count, names, given)) {
      return handle.refused(collective.signature.call);
    }
    const Entered entered(handle, collective.signature.call);
    if (entered && handle.batch_levels > 0) return add_to_batch(handle, collective, given);
    Call call;
    if (!entered || !collective.prepare(handle.comm(), given, call)) return nullptr;
    const dl_result result = beside_others([&] { return collective.run(handle.comm(), call); });
    if (result != DL_OK && call.used_op.raise()) return nullptr;
    if (result != DL_OK) return raise_last(result, handle.comm());
    return result_of(collective, call);
  });
}

template <const Collective& collective>
PyObject* background(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    const auto& handle = parts_of<Parts>(self).handle;
    if (!parse(collective.signature, args, count, names, given)) {
      return handle->refused(collective.signature.call);
    }
    return start(handle, collective, given);
  });
}

template <const Collective& collective>
PyObject* persistent(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    if (!parse(collective.signature, args, count, names, given)) return nullptr;
    return new_persistent(parts_of<Parts>(self).handle, collective, given);
  });
}

// Calls body(handle), one thread at a time; the method returns its result.
template <class Body>
PyObject* alone_in(PyObject* self, const char* call, Body body) {
  return contained([&]() -> PyObject* {
    Handle& handle = *parts_of<Parts>(self).handle;
    const Entered entered(handle, call);
    return entered ? body(handle) : nullptr;
  });
}

PyObject* none_or_error(dl_result result, const dl_comm* comm) {
  return result == DL_OK ? none() : raise_last(result, comm);
}

// -- Groups.

PyObject* group_of(Handle& handle, dl_result result, dl_comm* group) {
  if (result != DL_OK) return raise_last(result, handle.comm());
  if (group == nullptr) return none();
  PyObject* const made = new_communicator(group);
  if (made != nullptr) handle.add_group(parts_of<Parts>(made).handle);
  return made;
}

PyObject* own_shards(PyObject* self, PyObject* given) {
  const auto& parts = parts_of<CommunicatorParts>(self);
  int shards = 0, first = 0, last = 0;
  if (!integer("own_shards", "shards", given, shards) ||
      !shard_range("own_shards", shards, parts.rank, parts.size, first, last)) {
    return nullptr;
  }
  return PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "ii", first, last);
}

PyObject* some_behind(PyObject* self, PyObject*) {
  return alone_in(self, "some_behind", [](Handle& handle) -> PyObject* {
    return PyLong_FromLong(dl_some_behind(handle.comm()));
  });
}

constexpr Signature kSplit{"split", {"color", "key"}, 1, 2};
PyObject* split(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return alone_in(self, "split", [&](Handle& handle) -> PyObject* {
    Given given;
    int color = 0, key = 0;
    if (!parse(kSplit, args, count, names, given) || !integer("split", "key", given[1], key) ||
        (given[0] != Py_None && !integer("split", "color", given[0], color))) {
      return nullptr;
    }
    if (given[0] == Py_None) color = -1;
    dl_comm* group = nullptr;
    const dl_result result =
        beside_others([&] { return dl_split(handle.comm(), color, key, &group); });
    return group_of(handle, result, group);
  });
}

constexpr Signature kGroup{"group", {"ranks", "tag", "op_timeout"}, 1, 1};
PyObject* group(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return alone_in(self, "group", [&](Handle& handle) -> PyObject* {
    Given given;
    int tag = 0;
    double timeout = -1;
    std::vector<std::size_t> members;
    if (!parse(kGroup, args, count, names, given) || !sizes("group", "ranks", given[0], members) ||
        !integer("group", "tag", given[1], tag) ||
        !seconds("group", "op_timeout", given[2], timeout)) {
      return nullptr;
    }
    std::vector<int> ranks;
    ranks.reserve(members.size());
    // An invalid rank stays invalid.
    for (const std::size_t rank : members) ranks.push_back(rank < 1 << 30 ? int(rank) : -1);
    dl_comm* group = nullptr;
    const dl_result result = beside_others([&] {
      return dl_group(handle.comm(), ranks.data(), int(ranks.size()), tag, timeout, &group);
    });
    return group_of(handle, result, group);
  });
}

// -- Memory.

constexpr Signature kAlloc{"alloc", {"bytes"}, 1, 1};
PyObject* alloc(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return alone_in(self, "alloc", [&](Handle& handle) -> PyObject* {
    Given given;
    if (!parse(kAlloc, args, count, names, given)) return nullptr;
    const Py_ssize_t bytes = PyNumber_AsSsize_t(given[0], PyExc_OverflowError);
    if (bytes == -1 && PyErr_Occurred() != nullptr) return nullptr;
    if (bytes < 0) {
      PyErr_SetString(PyExc_ValueError, "alloc: bytes must be 0 or more");
      return nullptr;
    }
    void* memory = nullptr;
    const dl_result result = beside_others(
        [&] { return dl_alloc(handle.comm(), static_cast<std::size_t>(bytes), &memory); });
    if (result != DL_OK) return raise_last(result, handle.comm());
    return new_memory(parts_of<Parts>(self).handle, memory, bytes);
  });
}

constexpr Signature kFree{"free", {"memory"}, 1, 1};
PyObject* free_memory(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return alone_in(self, "free", [&](Handle& handle) -> PyObject* {
    Given given;
    if (!parse(kFree, args, count, names, given)) return nullptr;
    if (Py_TYPE(given[0]) != g_memory_type) {
      PyErr_SetString(PyExc_TypeError, "free: memory must be what alloc() has returned");
      return nullptr;
    }
    auto& memory = parts_of<MemoryParts>(given[0]);
    if (memory.handle.get() != &handle || memory.memory == nullptr) {
      PyErr_SetString(PyExc_ValueError, memory.memory == nullptr
                                            ? "free: this memory has been freed"
                                            : "free: this memory is another communicator's");
      return nullptr;
    }
    if (memory.exports > 0) {
      PyErr_Format(PyExc_BufferError, "free: %d arrays still lie in this memory: delete them first",
                   memory.exports);
      return nullptr;
    }
    void* const it = std::exchange(memory.memory, nullptr);
    handle.drop_memory();
    return none_or_error(dl_free(handle.comm(), it), handle.comm());
  });
}

// -- Keys.

constexpr Signature kKeySet{"key_set", {"key", "value"}, 2, 2};
PyObject* key_set(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    Ref kept;
    const char* key = "";
    if (!parse(kKeySet, args, count, names, given) || !text("key_set", "key", given[0], kept, key))
      return nullptr;
    if (PyBytes_Check(given[1]) == 0) {
      PyErr_SetString(PyExc_TypeError, "key_set: value must be bytes");
      return nullptr;
    }
    Handle& handle = *parts_of<Parts>(self).handle;
    const EnteredBeside entered(handle, "key_set");
    if (!entered) return nullptr;
    const auto* const value = PyBytes_AsString(given[1]);
    const auto bytes = static_cast<std::size_t>(PyBytes_Size(given[1]));
    const dl_result result =
        beside_others([&] { return dl_key_set(handle.comm(), key, value, bytes); });
    return none_or_error(result, handle.comm());
  });
}

constexpr Signature kKeyGet{"key_get", {"key", "timeout"}, 1, 2};
PyObject* key_get(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    Ref kept;
    const char* key = "";
    double timeout = -1;
    if (!parse(kKeyGet, args, count, names, given) ||
        !text("key_get", "key", given[0], kept, key) ||
        !seconds("key_get", "timeout", given[1], timeout)) {
      return nullptr;
    }
    Handle& handle = *parts_of<Parts>(self).handle;
    const EnteredBeside entered(handle, "key_get");
    if (!entered) return nullptr;
    std::string value(4096, '\0');
    std::size_t bytes = 0;
    const dl_result result = beside_others([&] {
      for (;;) {
        const dl_result got =
            dl_key_get(handle.comm(), key, timeout, value.data(), value.size(), &bytes);
        if (got != DL_OK || bytes <= value.size()) return got;
        value.resize(bytes);
      }
    });
    if (result != DL_OK) return raise_last(result, handle.comm());
    return PyBytes_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(bytes));
  });
}

constexpr Signature kKeyAdd{"key_add", {"key", "delta"}, 2, 2};
PyObject* key_add(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    Ref kept;
    const char* key = "";
    if (!parse(kKeyAdd, args, count, names, given) || !text("key_add", "key", given[0], kept, key))
      return nullptr;
    const long long delta = PyLong_AsLongLong(given[1]);
    if (delta == -1 && PyErr_Occurred() != nullptr) return nullptr;
    Handle& handle = *parts_of<Parts>(self).handle;
    const EnteredBeside entered(handle, "key_add");
    if (!entered) return nullptr;
    std::int64_t sum = 0;
    const dl_result result =
        beside_others([&] { return dl_key_add(handle.comm(), key, delta, &sum); });
    return result == DL_OK ? PyLong_FromLongLong(sum) : raise_last(result, handle.comm());
  });
}

// -- GPUs.

constexpr Signature kSetStream{"set_stream", {"stream", "ordered"}, 1, 1};
PyObject* set_stream(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return alone_in(self, "set_stream", [&](Handle& handle) -> PyObject* {
    Given given;
    if (!parse(kSetStream, args, count, names, given)) return nullptr;
    void* stream = nullptr;
    if (given[0] != Py_None) stream = PyLong_AsVoidPtr(given[0]);
    if (PyErr_Occurred() != nullptr) return nullptr;
    const int ordered = given[1] == nullptr ? 0 : PyObject_IsTrue(given[1]);
    if (ordered < 0) return nullptr;
    dl_result result = dl_set_stream(handle.comm(), stream);
    if (result == DL_OK) result = dl_set_stream_ordered(handle.comm(), ordered);
    return none_or_error(result, handle.comm());
  });
}

PyObject* sync(PyObject* self, PyObject*) {
  return alone_in(self, "sync", [&](Handle& handle) -> PyObject* {
    const dl_result result = beside_others([&] { return dl_sync(handle.comm()); });
    return none_or_error(result, handle.comm());
  });
}

PyObject* verify(PyObject* self, PyObject*) {
  return alone_in(self, "verify", [&](Handle& handle) -> PyObject* {
    const dl_result result = beside_others([&] { return dl_verify(handle.comm()); });
    return none_or_error(result, handle.comm());
  });
}

constexpr Signature kSetBackend{"set_backend", {"backend"}, 1, 1};
PyObject* set_backend(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return alone_in(self, "set_backend", [&](Handle& handle) -> PyObject* {
    Given given;
    Ref kept;
    const char* backend = "";
    if (!parse(kSetBackend, args, count, names, given) ||
        !text("set_backend", "backend", given[0], kept, backend)) {
      return nullptr;
    }
    return none_or_error(dl_set_backend(handle.comm(), backend), handle.comm());
  });
}

// -- Rounds, and the end.

constexpr Signature kRejoin{"rejoin", {"version"}, 0, 1};
PyObject* rejoin(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    if (!parse(kRejoin, args, count, names, given)) return nullptr;
    const unsigned long long version =
        given[0] == nullptr ? 0 : PyLong_AsUnsignedLongLong(given[0]);
    if (PyErr_Occurred() != nullptr) return nullptr;
    Handle& handle = *parts_of<Parts>(self).handle;
    if (!handle.leave_round("rejoin")) return nullptr;
    const dl_result result = beside_others([&] { return dl_rejoin(handle.comm(), version); });
    // Before enter_round(), which may have errors of its own.
    const std::string why = result == DL_OK ? "" : dl_last_error(handle.comm());
    const int lost = dl_peer_lost(handle.comm());
    handle.enter_round();
    learn_place(self);
    return result == DL_OK ? none() : raise_error(result, why.c_str(), lost);
  });
}

constexpr Signature kProgress{"progress", {"version"}, 1, 1};
PyObject* progress(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return alone_in(self, "progress", [&](Handle& handle) -> PyObject* {
    Given given;
    if (!parse(kProgress, args, count, names, given)) return nullptr;
    const unsigned long long version = PyLong_AsUnsignedLongLong(given[0]);
    if (PyErr_Occurred() != nullptr) return nullptr;
    dl_progress(handle.comm(), version);
    return none();
  });
}

PyObject* abort_all(PyObject* self, PyObject*) {
  return contained([&]() -> PyObject* {
    Handle& handle = *parts_of<Parts>(self).handle;
    if (handle.closed() || handle.is_alone() || handle.forked()) {
      const EnteredBeside refused(handle, "abort");
      return refused ? raise_closed("abort: the communicator belongs to the process that made it")
                     : nullptr;
    }
    dl_abort(handle.comm());
    return none();
  });
}

PyObject* finalize(PyObject* self, PyObject*) {
  return contained([&]() -> PyObject* {
    Handle& handle = *parts_of<Parts>(self).handle;
    if (handle.closed()) return none();
    if (!handle.forked() && !handle.enter_alone("finalize")) return nullptr;
    handle.close();
    return none();
  });
}

PyObject* enter_with(PyObject* self, PyObject*) {
  Py_INCREF(self);
  return self;
}
PyObject* exit_with(PyObject* self, PyObject* const*, Py_ssize_t, PyObject*) {
  return finalize(self, nullptr);
}

// -- Its properties.

constexpr Signature kExplain{"explain", {"collective", "count", "dtype", "op", "root"}, 3, 3};
PyObject* explain(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return alone_in(self, "explain", [&](Handle& handle) -> PyObject* {
    Given given;
    Ref kept_call, kept_type;
    const char *call = "", *type = "";
    dl_op op = DL_SUM;
    int root = 0;
    if (!parse(kExplain, args, count, names, given) ||
        !text("explain", "collective", given[0], kept_call, call) ||
        !text("explain", "dtype", given[2], kept_type, type) ||
        !operation("explain", given[3], op) || !integer("explain", "root", given[4], root)) {
      return nullptr;
    }
    const std::size_t elements = PyLong_AsSize_t(given[1]);
    if (PyErr_Occurred() != nullptr) return nullptr;
    const dl_dtype dtype = dtype_named(type).value_or(DL_DTYPE_ANY_INT);
    char words[1024];
    const dl_result result =
        dl_explain(handle.comm(), call, elements, dtype, op, root, words, sizeof words);
    if (result != DL_OK) return raise_last(result, handle.comm());
    return PyUnicode_DecodeUTF8(words, Py_ssize_t(std::strlen(words)), "replace");
  });
}

PyObject* get_rank(PyObject* self, void*) { return PyLong_FromLong(parts_of<Parts>(self).rank); }
PyObject* get_size(PyObject* self, void*) { return PyLong_FromLong(parts_of<Parts>(self).size); }
PyObject* get_closed(PyObject* self, void*) {
  return PyBool_FromLong(parts_of<Parts>(self).handle->closed() ? 1 : 0);
}

// Asks the library about an open communicator; null: sets an exception, because it is closed.
template <class Ask>
PyObject* ask(PyObject* self, const char* call, Ask question) {
  return contained([&]() -> PyObject* {
    Handle& handle = *parts_of<Parts>(self).handle;
    const EnteredBeside entered(handle, call);
    return entered ? question(handle.comm()) : nullptr;
  });
}
PyObject* get_transport(PyObject* self, void*) {
  return ask(self, "transport",
             [](dl_comm* comm) { return PyUnicode_FromString(dl_transport(comm)); });
}
PyObject* get_gpu_transport(PyObject* self, void*) {
  return ask(self, "gpu_transport",
             [](dl_comm* comm) { return PyUnicode_FromString(dl_gpu_transport(comm)); });
}
PyObject* get_round(PyObject* self, void*) {
  return ask(self, "round",
             [](dl_comm* comm) { return PyLong_FromUnsignedLongLong(dl_round(comm)); });
}
PyObject* get_round_over(PyObject* self, void*) {
  return ask(self, "round_over",
             [](dl_comm* comm) { return PyBool_FromLong(dl_round_over(comm)); });
}
PyObject* get_peer_lost(PyObject* self, void*) {
  return ask(self, "peer_lost", [](dl_comm* comm) {
    const int rank = dl_peer_lost(comm);
    return rank < 0 ? none() : PyLong_FromLong(rank);
  });
}

PyObject* represent(PyObject* self) {
  const auto& parts = parts_of<Parts>(self);
  return parts.handle->closed() ? PyUnicode_FromString("<dlaunch.Communicator, finalized>")
                                : PyUnicode_FromFormat("<dlaunch.Communicator, rank %d of %d>",
                                                       parts.rank, parts.size);
}

template <const Collective& collective>
PyMethodDef called(const char* name) {
  return {name, as_method(blocking<collective>), kMethod, nullptr};
}
template <const Collective& collective>
PyMethodDef started(const char* name) {
  return {name, as_method(background<collective>), kMethod, nullptr};
}

template <const Collective& collective>
PyMethodDef prepared(const char* name) {
  return {name, as_method(persistent<collective>), kMethod, nullptr};
}

PyMethodDef g_methods[] = {
    called<kAllReduce>("all_reduce"),
    called<kAllReduceList>("all_reduce_list"),
    called<kAllReduceShards>("all_reduce_shards"),
    called<kCompressedAverage>("compressed_average"),
    called<kAllReduceSome>("all_reduce_some"),
    called<kScan>("scan"),
    called<kExscan>("exscan"),
    called<kReduce>("reduce"),
    called<kReduceScatter>("reduce_scatter"),
    called<kReduceScatterV>("reduce_scatter_v"),
    called<kAllGather>("all_gather"),
    called<kAllGatherV>("all_gather_v"),
    called<kGather>("gather"),
    called<kGatherV>("gather_v"),
    called<kScatter>("scatter"),
    called<kScatterV>("scatter_v"),
    called<kAllToAll>("all_to_all"),
    called<kAllToAllV>("all_to_all_v"),
    called<kBroadcast>("broadcast"),
    called<kBroadcastList>("broadcast_list"),
    called<kBarrier>("barrier"),
    called<kSend>("send"),
    called<kRecv>("recv"),
    called<kRecvAny>("recv_any"),
    started<kAllReduce>("iall_reduce"),
    started<kAllReduceList>("iall_reduce_list"),
    started<kAllReduceShards>("iall_reduce_shards"),
    started<kCompressedAverage>("icompressed_average"),
    started<kScan>("iscan"),
    started<kExscan>("iexscan"),
    started<kReduce>("ireduce"),
    started<kReduceScatter>("ireduce_scatter"),
    started<kReduceScatterV>("ireduce_scatter_v"),
    started<kAllGather>("iall_gather"),
    started<kAllGatherV>("iall_gather_v"),
    started<kGather>("igather"),
    started<kGatherV>("igather_v"),
    started<kScatter>("iscatter"),
    started<kScatterV>("iscatter_v"),
    started<kAllToAll>("iall_to_all"),
    started<kAllToAllV>("iall_to_all_v"),
    started<kBroadcast>("ibroadcast"),
    started<kBroadcastList>("ibroadcast_list"),
    started<kBarrier>("ibarrier"),
    started<kSend>("isend"),
    started<kRecv>("irecv"),
    started<kRecvAny>("irecv_any"),
    prepared<kAllReduce>("all_reduce_init"),
    prepared<kReduce>("reduce_init"),
    prepared<kReduceScatter>("reduce_scatter_init"),
    prepared<kAllGather>("all_gather_init"),
    prepared<kAllToAll>("all_to_all_init"),
    prepared<kBroadcast>("broadcast_init"),
    prepared<kBarrier>("barrier_init"),
    {"batch", new_batch, METH_NOARGS, nullptr},
    {"own_shards", own_shards, METH_O, nullptr},
    {"some_behind", some_behind, METH_NOARGS, nullptr},
    {"split", as_method(split), kMethod, nullptr},
    {"group", as_method(group), kMethod, nullptr},
    {"alloc", as_method(alloc), kMethod, nullptr},
    {"free", as_method(free_memory), kMethod, nullptr},
    {"key_set", as_method(key_set), kMethod, nullptr},
    {"key_get", as_method(key_get), kMethod, nullptr},
    {"key_add", as_method(key_add), kMethod, nullptr},
    {"set_stream", as_method(set_stream), kMethod, nullptr},
    {"sync", sync, METH_NOARGS, nullptr},
    {"verify", verify, METH_NOARGS, nullptr},
    {"set_backend", as_method(set_backend), kMethod, nullptr},
    {"rejoin", as_method(rejoin), kMethod, nullptr},
    {"progress", as_method(progress), kMethod, nullptr},
    {"explain", as_method(explain), kMethod, nullptr},
    {"abort", abort_all, METH_NOARGS, nullptr},
    {"finalize", finalize, METH_NOARGS, nullptr},
    {"__enter__", enter_with, METH_NOARGS, nullptr},
    {"__exit__", as_method(exit_with), kMethod, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef g_attributes[] = {
    {"rank", get_rank, nullptr, nullptr, nullptr},
    {"size", get_size, nullptr, nullptr, nullptr},
    {"closed", get_closed, nullptr, nullptr, nullptr},
    {"transport", get_transport, nullptr, nullptr, nullptr},
    {"gpu_transport", get_gpu_transport, nullptr, nullptr, nullptr},
    {"round", get_round, nullptr, nullptr, nullptr},
    {"round_over", get_round_over, nullptr, nullptr, nullptr},
    {"peer_lost", get_peer_lost, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

void learn_place(PyObject* self) {
  auto& parts = parts_of<Parts>(self);
  parts.rank = dl_rank(parts.handle->comm());
  parts.size = dl_size(parts.handle->comm());
}

PyTypeObject* make_communicator_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<Parts>)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {Py_tp_repr, reinterpret_cast<void*>(represent)},
      {Py_tp_methods, g_methods},
      {Py_tp_getset, g_attributes},
      {Py_tp_doc, const_cast<char*>("The ranks of a job, or some of them. Made by dlaunch.init(), "
                                    "split() and group(); the manual is dlaunch/_core.pyi.")},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch.Communicator", sizeof(Object<Parts>), 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyObject* new_communicator(dl_comm* comm, Ref owner) {
  auto handle = std::make_shared<Handle>(comm, std::move(owner));
  return new_object(
      g_communicator_type,
      CommunicatorParts{.handle = std::move(handle), .rank = dl_rank(comm), .size = dl_size(comm)});
}

constexpr Signature kBorrow{"borrow", {"capsule", "owner"}, 2, 2};
PyObject* borrow(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    if (!parse(kBorrow, args, count, names, given)) return nullptr;
    void* const comm = PyCapsule_GetPointer(given[0], "dl_comm");
    if (comm == nullptr) return nullptr;
    return new_communicator(static_cast<dl_comm*>(comm), Ref::of(given[1]));
  });
}

}  // namespace dlaunch::python
