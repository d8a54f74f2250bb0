// libdlelastic's state for dlelastic_torch, which is the manual: what it does not say is as in
// <dlaunch/elastic.h>. Memory is given by its address; who gives it keeps it where it is.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <dlaunch/elastic.h>

namespace py = pybind11;

namespace {

class State {
 public:
  // communicator: dlring_torch's.
  explicit State(py::object communicator) : communicator_(std::move(communicator)) {
    auto* const comm =
        reinterpret_cast<dl_comm*>(communicator_.attr("address").cast<std::uintptr_t>());
    dl_state* state = nullptr;
    if (dl_state_new(comm, nullptr, &state) != DL_OK) {
      throw std::runtime_error("dlelastic: no state could be made");
    }
    state_.reset(state);
  }

  void replicated(const std::string& name, std::uintptr_t at, std::size_t bytes) {
    check(dl_state_replicated(get(), name.c_str(), reinterpret_cast<void*>(at), bytes));
  }
  void snapshots(const std::string& folder, int every, int keep) {
    check(dl_state_snapshots(get(), folder.c_str(), every, keep));
  }
  void sync() { check(alone(dl_state_sync)); }
  void commit() {
    check(alone([](dl_state* state) { return dl_state_commit(state, 0); }));
  }
  void restore() { check(alone(dl_state_restore)); }
  void recover() { check(alone(dl_state_recover)); }
  void finish() { check(alone(dl_state_finish)); }
  bool round_over() const { return dl_state_round_over(get()) != 0; }
  std::pair<std::uint64_t, std::uint64_t> committed() const {
    const auto version = dl_state_committed(get());
    return {version.round, version.number};
  }

 private:
  struct Free {
    void operator()(dl_state* state) const {
      const py::gil_scoped_release others_run;
      dl_state_free(state);
    }
  };

  dl_state* get() const { return state_.get(); }

  // Other threads of Python run meanwhile.
  template <class Call>
  dl_result alone(Call call) {
    const py::gil_scoped_release others_run;
    return call(get());
  }
  void check(dl_result result) const {
    if (result == DL_OK) return;
    const std::string text = std::string("dlelastic: ") + dl_state_last_error(get());
    const char* const type = result == DL_ERR_PEER_LOST ? "PeerLost" : nullptr;
    const py::object error =
        type != nullptr ? py::module::import("dlring_torch").attr(type)
                        : py::reinterpret_borrow<py::object>(
                              result == DL_ERR_INVALID ? PyExc_ValueError : PyExc_RuntimeError);
    PyErr_SetString(error.ptr(), text.c_str());
    throw py::error_already_set();
  }

  const py::object communicator_;  // outlives the state
  std::unique_ptr<dl_state, Free> state_;
};

}  // namespace

PYBIND11_MODULE(dlelastic_binding, module) {
  py::class_<State>(module, "State")
      .def(py::init<py::object>())
      .def("replicated", &State::replicated)
      .def("snapshots", &State::snapshots)
      .def("sync", &State::sync)
      .def("commit", &State::commit)
      .def("restore", &State::restore)
      .def("recover", &State::recover)
      .def("finish", &State::finish)
      .def_property_readonly("round_over", &State::round_over)
      .def_property_readonly("committed", &State::committed);
}
