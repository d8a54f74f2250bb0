// "dlring" as a library without Python: one for each minor release of PyTorch, made by
// build_release.py, with dlaunch/torch/_library.py as its other half. Objects go to Python as
// PyTorch's own classes, or as the class registered here.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ring/torch/torch_bootstrap.h"
#include "ring/torch/torch_group.h"
#include "ring/torch/torch_rounds.h"
#include "ring/torch/torch_store.h"

// Defined here as the C++ library of GCC 11 has it, the newest one on systems with the oldest glibc
// of a wheel. Nothing else here needs a newer one.
#ifdef __GLIBCXX__
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
#endif

namespace dlring_torch {
namespace {

using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

struct Communicator final : torch::CustomClassHolder {
  explicit Communicator(std::shared_ptr<Comm> given) : comm(std::move(given)) {}
  const std::shared_ptr<Comm> comm;
};
using CommunicatorPtr = c10::intrusive_ptr<Communicator>;

// Python can unbox c10d's groups: this one holds its back end. where: a group with the store of the
// bootstrap.
ProcessGroupPtr make_group(const ProcessGroupPtr& where, std::int64_t rank, std::int64_t size,
                           double timeout_s, const std::string& id, std::vector<std::int64_t> ranks,
                           bool reconfigured_first) {
  const WithoutGil others_run;
  c10d::DistributedBackendOptions given;
  given.store = where->getStore();
  given.group_rank = static_cast<int>(rank);
  given.group_size = static_cast<int>(size);
  given.timeout = std::chrono::duration<float>(timeout_s);
  given.group_id = id;
  given.global_ranks_in_group = std::move(ranks);
  const auto group = group_for(given, reconfigured_first);
  auto holder = c10::make_intrusive<c10d::ProcessGroup>(group->getRank(), group->getSize());
  holder->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, group);
  return holder;
}

// A group that holds the store.
ProcessGroupPtr store_of(const CommunicatorPtr& self) {
  const auto& comm = self->comm;
  return c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<KeyStore>(comm),
                                                 dl_rank(comm->get()), dl_size(comm->get()));
}

CommunicatorPtr join_world() {
  const WithoutGil others_run;
  return c10::make_intrusive<Communicator>(join_rounds());
}

// A list of one communicator, or an empty one.
std::vector<CommunicatorPtr> present_world() {
  const auto comm = world.lock();
  if (!comm) return {};
  return {c10::make_intrusive<Communicator>(comm)};
}

TORCH_LIBRARY(dlring, library) {
  library.class_<Communicator>("Communicator")
      .def("rank",
           [](const CommunicatorPtr& self) -> std::int64_t { return dl_rank(self->comm->get()); })
      .def("size",
           [](const CommunicatorPtr& self) -> std::int64_t { return dl_size(self->comm->get()); })
      .def("round",
           [](const CommunicatorPtr& self) {
             return static_cast<std::int64_t>(self->comm->round());
           })
      .def("lost", [](const CommunicatorPtr& self) { return self->comm->lost(); })
      .def("address",
           [](const CommunicatorPtr& self) {
             return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(self->comm->get()));
           })
      .def("settle",
           [](const CommunicatorPtr& self) {
             const WithoutGil others_run;
             self->comm->settle();
           })
      .def("share_from_first",
           [](const CommunicatorPtr& self, const Tensors& tensors) {
             const WithoutGil others_run;
             share_from_first(*self->comm, tensors);
           })
      .def("follow_stream", [](const CommunicatorPtr& self,
                               const at::Tensor& tensor) { follow_stream(*self->comm, tensor); })
      .def("store", &store_of);
  library.def("make_group", &make_group);
  library.def("join_world", &join_world);
  library.def("present_world", &present_world);
}

}  // namespace
}  // namespace dlring_torch

// For Python's ctypes: the end of Python, and the classes of the exceptions for a lost peer.
extern "C" {
__attribute__((visibility("default"))) void dlring_torch_close() {
  dlring_torch::Group::close_all();
}
__attribute__((visibility("default"))) void dlring_torch_raise(void* peer_lost, void* corrupt) {
  dlring_torch::peer_lost_class = static_cast<dlring_torch::PythonClass*>(peer_lost);
  dlring_torch::corrupt_class = static_cast<dlring_torch::PythonClass*>(corrupt);
}
}
