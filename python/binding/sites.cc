// dlaunch._core.Sites and read_journal: <dlaunch/sites.h> for dlaunch.Sites and dlaunch.journal.
#include <string>

#include "python/binding/errors.h"
#include "python/binding/types.h"

namespace dlaunch::python {

PyTypeObject* g_sites_type = nullptr;

namespace {

PyObject* close_sites(PyObject* self, PyObject*) {
  return contained([&]() -> PyObject* {
    auto& parts = parts_of<SitesParts>(self);
    const Entered entered(*parts.handle, "close");
    if (!entered) return nullptr;
    beside_others([&] { dl_sites_leave(parts.sites); });
    return none();
  });
}

// The names of the sites of a mask, by a function from their places to the names.
template <class NameOf>
Ref names_in(std::uint32_t mask, NameOf name_of) {
  Ref names = Ref::owned(PyList_New(0));
  for (int site = 0; names && site < DL_SITES_MOST; ++site) {
    if ((mask >> site & 1) == 0) continue;
    const char* const known = name_of(site);
    const Ref name = Ref::owned(known != nullptr ? PyUnicode_FromString(known)
                                                 : PyUnicode_FromFormat("%d", site));
    if (!name || PyList_Append(names.get(), name.get()) != 0) return {};
  }
  return names;
}

Ref by_name(const dl_sites* sites, const std::uint64_t* values, int count) {
  Ref all = Ref::owned(PyDict_New());
  for (int site = 0; all && site < count; ++site) {
    const Ref value = Ref::owned(PyLong_FromUnsignedLongLong(values[site]));
    const char* const name = dl_sites_name(sites, site);
    if (!value || PyDict_SetItemString(all.get(), name, value.get()) != 0) return {};
  }
  return all;
}

PyObject* get_sites_info(PyObject* self, void*) {
  return contained([&]() -> PyObject* {
    dl_sites* const sites = parts_of<SitesParts>(self).sites;
    dl_sites_info info;
    info.struct_size = sizeof info;
    dl_sites_get_info(sites, &info);
    const auto name_of = [sites](int site) { return dl_sites_name(sites, site); };
    const Ref in = names_in(info.contributed, name_of), members = names_in(info.members, name_of);
    const Ref all = names_in((1U << info.sites) - 1, name_of);
    const Ref sent = by_name(sites, info.bytes_sent, info.sites);
    const Ref received = by_name(sites, info.bytes_received, info.sites);
    if (!in || !members || !all || !sent || !received) return nullptr;
    return Py_BuildValue("{s:O,s:s,s:K,s:K,s:O,s:O,s:K,s:K,s:O,s:O}", "sites", all.get(), "site",
                         name_of(info.site), "merges", static_cast<unsigned long long>(info.merges),
                         "epoch", static_cast<unsigned long long>(info.epoch), "contributed",
                         in.get(), "members", members.get(), "carried",
                         static_cast<unsigned long long>(info.carried), "jumps",
                         static_cast<unsigned long long>(info.jumps), "bytes_sent", sent.get(),
                         "bytes_received", received.get());
  });
}

PyMethodDef g_sites_methods[] = {
    {"close", close_sites, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef g_sites_attributes[] = {
    {"info", get_sites_info, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

constexpr Signature kSites{"Sites",
                           {"communicator", "sites", "site", "grace", "timeout", "wait", "linger",
                            "journal", "drops_late"},
                           1,
                           1};

constexpr Signature kReadJournal{"read_journal", {"path", "replay", "take"}, 3, 3};

PyObject* entry_of(const dl_journal* journal, const dl_journal_entry& entry) {
  static constexpr const char* kKinds[] = {"start", "merge", "founding", "snapshot"};
  const auto name_of = [journal](int site) { return dl_journal_site(journal, site); };
  std::uint32_t listed = 0;
  for (int site = 0; site < DL_SITES_MOST && name_of(site) != nullptr; ++site) listed |= 1U << site;
  const Ref in = names_in(entry.contributed, name_of), members = names_in(entry.members, name_of);
  const Ref all = names_in(listed, name_of);
  if (!in || !members || !all) return nullptr;
  const Ref replayed = entry.replayed != 0
                           ? Ref::owned(PyLong_FromUnsignedLongLong(entry.replayed_hash))
                           : Ref::of(Py_None);
  if (!replayed) return nullptr;
  return Py_BuildValue("{s:s,s:L,s:O,s:z,s:K,s:K,s:O,s:O,s:K,s:K,s:O}", "kind", kKinds[entry.kind],
                       "when_ns", static_cast<long long>(entry.when_ns), "sites", all.get(), "site",
                       entry.kind == DL_JOURNAL_START ? name_of(entry.site) : nullptr, "epoch",
                       static_cast<unsigned long long>(entry.epoch), "number",
                       static_cast<unsigned long long>(entry.number), "contributed", in.get(),
                       "members", members.get(), "bytes",
                       static_cast<unsigned long long>(entry.bytes), "hash",
                       static_cast<unsigned long long>(entry.hash), "replayed", replayed.get());
}

// Calls take(entry) for each entry. False: sets an exception.
bool read_entries(dl_journal* journal, int replay, PyObject* take) {
  while (true) {
    dl_journal_entry entry;
    entry.struct_size = sizeof entry;
    int end = 0;
    const dl_result result =
        beside_others([&] { return dl_journal_next(journal, replay, &entry, &end); });
    if (result != DL_OK) {
      raise_last(result, nullptr);
      return false;
    }
    if (end != 0) return true;
    const Ref made = Ref::owned(entry_of(journal, entry));
    if (!made || !Ref::owned(PyObject_CallFunctionObjArgs(take, made.get(), nullptr))) return false;
  }
}

}  // namespace

PyTypeObject* make_sites_type() {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(delete_object<SitesParts>)},
      {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
      {Py_tp_methods, g_sites_methods},
      {Py_tp_getset, g_sites_attributes},
      {0, nullptr},
  };
  PyType_Spec spec{"dlaunch._core.Sites", sizeof(Object<SitesParts>), 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyObject* new_sites(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    dl_sites_options options;
    dl_sites_options_init(&options);
    Ref kept[3];
    int drops = 0;
    const char* const call = kSites.call;
    if (!parse(kSites, args, count, names, given) ||
        !text(call, "sites", given[1], kept[0], options.sites) ||
        !text(call, "site", given[2], kept[1], options.site) ||
        !seconds(call, "grace", given[3], options.grace_s) ||
        !seconds(call, "timeout", given[4], options.timeout_s) ||
        !seconds(call, "wait", given[5], options.wait_s) ||
        !seconds(call, "linger", given[6], options.linger_s) ||
        !text(call, "journal", given[7], kept[2], options.journal) || !flag(given[8], drops)) {
      return nullptr;
    }
    options.late = drops != 0 ? DL_SITES_DROP : DL_SITES_CARRY;
    if (Py_TYPE(given[0]) != g_communicator_type) {
      PyErr_SetString(PyExc_TypeError, "Sites: communicator must be a dlaunch.Communicator");
      return nullptr;
    }
    const auto handle = parts_of<CommunicatorParts>(given[0]).handle;
    const Entered entered(*handle, "Sites");
    if (!entered) return nullptr;
    dl_sites* sites = nullptr;
    const dl_result result = dl_sites_open(handle->comm(), &options, &sites);
    if (result != DL_OK) return raise_last(result, handle->comm());
    return new_object(g_sites_type, SitesParts(handle, sites));
  });
}

// Gives a dict of each entry to a function, and returns whether the last record is torn.
PyObject* read_journal(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return contained([&]() -> PyObject* {
    Given given;
    Ref kept;
    const char* path = nullptr;
    int replay = 0;
    if (!parse(kReadJournal, args, count, names, given) ||
        !text("read_journal", "path", given[0], kept, path) || !flag(given[1], replay)) {
      return nullptr;
    }
    dl_journal* journal = nullptr;
    const dl_result result = dl_journal_open(path, &journal);
    if (result != DL_OK) return raise_last(result, nullptr);
    const bool read = read_entries(journal, replay, given[2]);
    const int torn = dl_journal_torn(journal);
    dl_journal_close(journal);
    return read ? PyBool_FromLong(torn) : nullptr;
  });
}

}  // namespace dlaunch::python
