// "dlring" for the torch.distributed of a PyTorch older than 2.4. dlaunch.torch imports this
// module, and the import registers it. For newer versions see torch_library.cc.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ring/torch/torch_bootstrap.h"
#include "ring/torch/torch_group.h"
#include "ring/torch/torch_rounds.h"
#include "ring/torch/torch_store.h"

namespace dlring_torch {
namespace {

c10::intrusive_ptr<Base> make_group(const c10d::DistributedBackendOptions& given) {
  return group_for(given, false);
}

// Moves an elastic process from round to round: for dlaunch.torch.elastic.
void bind_rounds(pybind11::module& module) {
  namespace py = pybind11;
  const auto others_run = py::call_guard<py::gil_scoped_release>();
  py::class_<Comm, std::shared_ptr<Comm>>(module, "Communicator")
      .def_property_readonly("rank", [](const Comm& comm) { return dl_rank(comm.get()); })
      .def_property_readonly("size", [](const Comm& comm) { return dl_size(comm.get()); })
      .def_property_readonly("round", &Comm::round)
      .def_property_readonly("lost", &Comm::lost)
      .def_property_readonly(
          "address", [](const Comm& comm) { return reinterpret_cast<std::uintptr_t>(comm.get()); })
      .def("settle", &Comm::settle, others_run)
      .def("share_from_first", &share_from_first, others_run)
      .def("follow_stream", &follow_stream)
      .def("store", [](std::shared_ptr<Comm> comm) -> c10::intrusive_ptr<c10d::Store> {
        return c10::make_intrusive<KeyStore>(std::move(comm));
      });
  module.def("join_rounds", &join_rounds, others_run);
  module.def("communicator", [] { return world.lock(); });
}

// Raises dlaunch.PeerLost or dlaunch.Corrupt for a PeerLost, even out of PyTorch's own functions.
void bind_peer_lost() {
  namespace py = pybind11;
  // They are never freed.
  const py::module errors = py::module::import("dlaunch._errors");
  peer_lost_class = py::object(errors.attr("PeerLost")).release().ptr();
  corrupt_class = py::object(errors.attr("Corrupt")).release().ptr();
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(std::move(thrown));
    } catch (const PeerLost& lost) {
      PyErr_SetString(class_of_peer_lost(lost.corrupt), lost.what());
    }
  });
}

}  // namespace
}  // namespace dlring_torch

PYBIND11_MODULE(dlring_torch, module) {
  namespace py = pybind11;
  module.doc() = "torch.distributed's back end \"dlring\": collectives by libdlring";
  dlring_torch::bind_peer_lost();
  dlring_torch::bind_rounds(module);
  py::module::import("atexit").attr("register")(
      py::cpp_function(&dlring_torch::Group::close_all, py::call_guard<py::gil_scoped_release>()));
  const py::object backends = py::module::import("torch.distributed").attr("Backend");
  const py::cpp_function create(
      [](const c10d::DistributedBackendOptions& given, const py::object& own) {
        if (!own.is_none()) throw std::invalid_argument("dlring has no options");
        const py::gil_scoped_release others_run;
        return dlring_torch::make_group(given);
      });
#if TORCH_VERSION_MAJOR >= 2
  backends.attr("register_backend")("dlring", create, py::arg("extended_api") = true,
                                    py::arg("devices") = std::vector<std::string>{"cpu", "cuda"});
#else
  backends.attr("register_backend")("dlring", create, py::arg("extended_api") = true);
#endif
}
