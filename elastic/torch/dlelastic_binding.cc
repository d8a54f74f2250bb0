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
  // That led to this state.
  std::uint64_t commits() const { return dl_state_committed(get()).number; }

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
    if (result == DL_ERR_INVALID) throw py::value_error(text);
    if (result != DL_ERR_PEER_LOST) throw std::runtime_error(text);
    const py::object lost = py::module::import("dlring_torch").attr("PeerLost");
    PyErr_SetString(lost.ptr(), text.c_str());
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
      .def_property_readonly("commits", &State::commits);
}
