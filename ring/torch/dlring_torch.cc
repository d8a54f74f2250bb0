// "dlring" for torch.distributed: a group of c10d over libdlring's C API. Importing the module
// registers it.
//
// Collectives are started in the order of the calls and end in that order; messages go on beside
// them. What cannot be done is refused before anything is sent, on each rank alike.
#include <ATen/ATen.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <climits>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#if defined(DLRING_TORCH_CUDA) && __has_include(<c10/cuda/CUDAStream.h>)
#include <c10/cuda/CUDAStream.h>
#endif

#include "ring/torch/torch_meeting.h"
#include "ring/torch/torch_store.h"
#include "ring/torch/torch_tensors.h"
#include "ring/torch/torch_work.h"

namespace dlring_torch {
namespace {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Of messages that are part of a collective; users' tags are below.
constexpr int kExchangeTag = INT_MAX;

// -- CUDA: what was in the tensor's current stream comes first.

#ifdef DLRING_TORCH_CUDA
void follow_stream(Comm& comm, const at::Tensor& tensor) {
  if (!tensor.device().is_cuda()) return;
  const auto stream = c10::cuda::getCurrentCUDAStream(tensor.device().index());
  comm.check(dl_set_stream(comm.get(), stream.stream()));
}
// What this thread has put into its stream is done.
void finish_copies(const at::Tensor& tensor) {
  if (!tensor.device().is_cuda()) return;
  c10::cuda::getCurrentCUDAStream(tensor.device().index()).synchronize();
}
#else
void follow_stream(Comm&, const at::Tensor& tensor) {
  if (!tensor.device().is_cuda()) return;
  throw std::runtime_error("dlring: dlring_torch was built for a PyTorch without CUDA");
}
void finish_copies(const at::Tensor&) {}
#endif

// -- The group

class Group final : public Base {
 public:
  Group(std::shared_ptr<Comm> comm)
      : Base(dl_rank(comm->get()), dl_size(comm->get())), comm_(std::move(comm)) {
    const std::lock_guard lock(all_mutex);
    all.insert(this);
  }
  ~Group() override {
    const WithoutGil others_run;
    {
      const std::lock_guard lock(all_mutex);
      all.erase(this);
    }
    close()();
  }
  // Before Python ends: a thread that would free a tensor after that would end the process.
  static void close_all() {
    std::vector<std::function<void()>> ends;
    {
      const std::lock_guard lock(all_mutex);
      for (Group* const group : all) ends.push_back(group->close());
    }
    for (const auto& await_end : ends) await_end();
  }

  const std::string getBackendName() const override { return "dlring"; }
  void abort() { dl_abort(comm_->get()); }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    const char* const call = "all_reduce";
    const at::Tensor& tensor = only(call, tensors);
    const auto given = packed_results(call, tensors);
    const Reduced x(call, given[0]);
    const auto op = op_of(call, opts.reduceOp, tensor);
    return start(
        c10d::OpType::ALLREDUCE, tensors, given,
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_iall_reduce(comm, x.data, x.data, x.count, x.dtype, op, work.part());
        },
        put_all_back(given, tensors));
  }

  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override {
    const char* const call = "all_reduce_coalesced";
    check_tensors(call, tensors);
    const auto op = op_of(call, opts.reduceOp, tensors[0]);
    const auto given = packed_results(call, tensors);
    std::vector<void*> data;
    std::vector<std::size_t> counts;
    for (const auto& tensor : given) {
      data.push_back(Reduced(call, tensor).data);
      counts.push_back(static_cast<std::size_t>(tensor.numel()));
    }
    return start(
        c10d::OpType::ALLREDUCE_COALESCED, tensors, given,
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_iall_reduce_list(comm, data.size(), data.data(), data.data(), counts.data(),
                                     dtype_of(tensors[0]), op, work.part());
        },
        put_all_back(given, tensors));
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    const char* const call = "broadcast";
    only(call, tensors);
    const int root = static_cast<int>(opts.rootRank);
    const bool writes = getRank() != root;
    const auto given = writes ? packed_results(call, tensors) : Tensors{packed(tensors[0])};
    const Moved x(given[0]);
    return start(
        c10d::OpType::BROADCAST, tensors, given,
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_ibroadcast(comm, x.data, x.count, x.dtype, root, work.part());
        },
        writes ? put_all_back(given, tensors) : nullptr);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    const char* const call = "reduce";
    const at::Tensor& tensor = only(call, tensors);
    const auto op = op_of(call, opts.reduceOp, tensor);
    const int root = static_cast<int>(opts.rootRank);
    const bool writes = getRank() == root;
    const auto given = writes ? packed_results(call, tensors) : Tensors{packed(tensor)};
    const Reduced x(call, given[0]);
    return start(
        c10d::OpType::REDUCE, tensors, given,
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_ireduce(comm, x.data, writes ? x.data : nullptr, x.count, x.dtype, op, root,
                            work.part());
        },
        writes ? put_all_back(given, tensors) : nullptr);
  }

  // The ranks may give tensors of different sizes: each knows all by its outputs.
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    const char* const call = "all_gather";
    const at::Tensor input = packed(only(call, inputs));
    const Tensors& parts = list_of(call, outputs, false);
    check_tensors(call, with(parts, input));
    if (parts[static_cast<std::size_t>(getRank())].numel() != input.numel()) {
      refuse(call, "the own output differs in size from the input");
    }
    const at::Tensor flat = flat_like(parts);
    std::vector<std::size_t> counts;
    for (const auto& part : parts) {
      check_writable(call, part);
      counts.push_back(Moved(part).count);
    }
    const Moved in(input), out(flat);
    return start(
        c10d::OpType::ALLGATHER, parts, {input, flat},
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_iall_gather_v(comm, in.data, out.data, counts.data(), in.dtype, work.part());
        },
        spread(flat, parts));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions&) override {
    const char* const call = "all_gather_into_tensor";
    check_tensors(call, {output, input});
    if (output.numel() != input.numel() * getSize()) {
      refuse(call, "the output has not the size of the input times the number of ranks");
    }
    const Tensors given = {packed(input), packed_result(call, output)};
    const Moved in(given[0]), out(given[1]);
    return start(
        c10d::OpType::_ALLGATHER_BASE, {output}, given,
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_iall_gather(comm, in.data, out.data, in.count, in.dtype, work.part());
        },
        put_all_back({given[1]}, {output}));
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    const char* const call = "gather";
    const at::Tensor input = packed(only(call, inputs));
    const int root = static_cast<int>(opts.rootRank);
    Tensors parts;
    at::Tensor flat;
    if (getRank() == root) {
      parts = list_of(call, outputs, true);
      check_tensors(call, with(parts, input));
      if (parts[0].numel() != input.numel()) refuse(call, "outputs and input differ in size");
      for (const auto& part : parts) check_writable(call, part);
      flat = flat_like(parts);
    }
    const Moved in(input);
    void* const out = flat.defined() ? flat.data_ptr() : nullptr;
    return start(
        c10d::OpType::GATHER, parts, flat.defined() ? Tensors{input, flat} : Tensors{input},
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_igather(comm, in.data, out, in.count, in.dtype, root, work.part());
        },
        spread(flat, parts));
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& opts) override {
    const char* const call = "scatter";
    const at::Tensor& output = only(call, outputs);
    const int root = static_cast<int>(opts.rootRank);
    at::Tensor flat;
    if (getRank() == root) {
      const Tensors& parts = list_of(call, inputs, true);
      check_tensors(call, with(parts, output));
      if (parts[0].numel() != output.numel()) refuse(call, "inputs and output differ in size");
      flat = flat_like(parts);
      copy_flat(flat, parts, true);
    }
    const auto given = packed_results(call, outputs);
    const Moved out(given[0]);
    const void* const in = flat.defined() ? flat.data_ptr() : nullptr;
    return start(
        c10d::OpType::SCATTER, outputs, flat.defined() ? with(given, flat) : given,
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_iscatter(comm, in, out.data, out.count, out.dtype, root, work.part());
        },
        put_all_back(given, outputs));
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    const char* const call = "reduce_scatter";
    at::Tensor output = only(call, outputs);
    const Tensors& parts = list_of(call, inputs, true);
    check_tensors(call, with(parts, output));
    at::Tensor flat = flat_like(parts);
    copy_flat(flat, parts, true);
    return _reduce_scatter_base(output, flat, opts);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override {
    const char* const call = "reduce_scatter";
    check_tensors(call, {output, input});
    if (input.numel() != output.numel() * getSize()) {
      refuse(call, "the input has not the size of the output times the number of ranks");
    }
    const Tensors given = {packed(input), packed_result(call, output)};
    const Reduced in(call, given[0]), out(call, given[1]);
    const auto op = op_of(call, opts.reduceOp, input);
    return start(
        c10d::OpType::_REDUCE_SCATTER_BASE, {output}, given,
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_ireduce_scatter(comm, in.data, out.data, out.count, out.dtype, op, work.part());
        },
        put_all_back({given[1]}, {output}));
  }

  // Without splits one collective; with them, as in the form with lists, each rank knows the sizes
  // of its own parts only, and they go as messages.
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& out_splits, std::vector<std::int64_t>& in_splits,
                        const c10d::AllToAllOptions&) override {
    const char* const call = "all_to_all_single";
    check_tensors(call, {output, input});
    if (!out_splits.empty() || !in_splits.empty()) {
      return exchange(call, split(call, output, out_splits), split(call, input, in_splits));
    }
    if (input.numel() != output.numel() || input.numel() % getSize() != 0) {
      refuse(call, "input and output differ in size, or do not divide by the number of ranks");
    }
    const Tensors given = {packed(input), packed_result(call, output)};
    const Moved in(given[0]), out(given[1]);
    const auto count = in.count / static_cast<std::size_t>(getSize());
    return start(
        c10d::OpType::ALLTOALL_BASE, {output}, given,
        [&](dl_comm* comm, CollectiveWork& work) {
          return dl_iall_to_all(comm, in.data, out.data, count, in.dtype, work.part());
        },
        put_all_back({given[1]}, {output}));
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    return exchange("all_to_all", outputs, inputs);
  }

  WorkPtr barrier(const c10d::BarrierOptions&) override {
    return start(c10d::OpType::BARRIER, {}, {}, [](dl_comm* comm, CollectiveWork& work) {
      return dl_ibarrier(comm, work.part());
    });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    const at::Tensor given = packed(only("send", tensors));
    const Moved x(given);
    return message(c10d::OpType::SEND, given, {}, to, [&](dl_comm* comm, Pending& pending) {
      return dl_isend(comm, x.data, x.count, x.dtype, to, tag, &pending.request);
    });
  }

  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    const at::Tensor given = packed_result("recv", only("recv", tensors));
    const Moved x(given);
    return message(c10d::OpType::RECV, given, tensors[0], from,
                   [&](dl_comm* comm, Pending& pending) {
                     return dl_irecv(comm, x.data, x.count, x.dtype, from, tag, &pending.request);
                   });
  }

  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    const at::Tensor given = packed_result("recv", only("recv", tensors));
    const Moved x(given);
    return message(c10d::OpType::RECVANYSOURCE, given, tensors[0], -1,
                   [&](dl_comm* comm, Pending& pending) {
                     return dl_irecv_any(comm, x.data, x.count, x.dtype, tag, &pending.source,
                                         &pending.request);
                   });
  }

 private:
  template <class Begin>
  WorkPtr start(c10d::OpType type, Tensors outputs, Tensors used, Begin begin,
                std::function<void()> after = nullptr) {
    const at::Tensor first = !used.empty() ? used[0] : outputs.empty() ? at::Tensor() : outputs[0];
    auto work = c10::make_intrusive<CollectiveWork>(comm_, type, std::move(outputs),
                                                    std::move(used), std::move(after));
    const std::lock_guard lock(comm_->starting);
    check_round();
    if (first.defined()) follow_stream(*comm_, first);
    const auto begun = begin(comm_->get(), *work);
    if (begun != DL_OK) {
      const auto error = comm_->exception(begun);
      work->fail(error);
      std::rethrow_exception(error);
    }
    completer_.push(work);
    return work;
  }

  template <class Begin>
  WorkPtr message(c10d::OpType type, const at::Tensor& tensor, const at::Tensor& result, int peer,
                  Begin begin) {
    auto work = c10::make_intrusive<MessageWork>(comm_, type, tensor);
    work->pending().result = result;
    work->pending().source = peer;
    const std::lock_guard lock(comm_->starting);
    check_round();
    follow_stream(*comm_, tensor);
    comm_->check(begin(comm_->get(), work->pending()));
    return work;
  }

  // As in libdlring: leaving with something under way is an abort.
  std::function<void()> close() {
    if (!completer_.idle() && comm_->round() == round_) dl_abort(comm_->get());
    return completer_.close();
  }

  // A group that something still knows, as a DistributedDataParallel of an earlier round.
  void check_round() const {
    if (completer_.closed()) throw std::runtime_error("dlring: this process is about to end");
    if (comm_->round() == round_) return;
    throw std::runtime_error("dlring: this group is of round " + std::to_string(round_) +
                             ", and the job is in round " + std::to_string(comm_->round()) +
                             ": make what uses it anew in each round");
  }

  // The one list in `lists`.
  const Tensors& list_of(const char* call, const TensorLists& lists, bool alike) const {
    if (lists.size() != 1) refuse(call, "one list of tensors is wanted");
    check_per_rank(call, lists[0], getSize(), alike);
    return lists[0];
  }

  // From one buffer to where the user wants the parts.
  static std::function<void()> spread(const at::Tensor& flat, const Tensors& parts) {
    if (!flat.defined()) return nullptr;
    return [flat, parts] {
      copy_flat(flat, parts, false);
      finish_copies(flat);
    };
  }

  // What lies in other memory for libdlring, to where the user wants it.
  static std::function<void()> put_all_back(const Tensors& packed, const Tensors& tensors) {
    bool all_there = true;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      all_there = all_there && packed[i].is_same(tensors[i]);
    }
    if (all_there) return nullptr;
    return [packed, tensors] {
      for (std::size_t i = 0; i < tensors.size(); ++i) put_back(packed[i], tensors[i]);
      finish_copies(tensors[0]);
    };
  }

  // The first dimension in as many parts; no sizes: equal ones.
  Tensors split(const char* call, const at::Tensor& tensor,
                const std::vector<std::int64_t>& sizes) const {
    const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
    if (sizes.empty()) {
      if (rows % getSize() != 0) refuse(call, "the rows do not divide by the number of ranks");
      return split(call, tensor,
                   std::vector(static_cast<std::size_t>(getSize()), rows / getSize()));
    }
    Tensors parts;
    std::int64_t at = 0;
    for (const auto size : sizes) {
      if (size < 0 || at + size > rows) refuse(call, "the splits are not those of the tensor");
      parts.push_back(tensor.narrow(0, at, size));
      at += size;
    }
    if (at != rows) refuse(call, "the splits are not those of the tensor");
    return parts;
  }

  WorkPtr exchange(const char* call, const Tensors& outputs, const Tensors& inputs) {
    check_per_rank(call, outputs, getSize(), false);
    check_per_rank(call, inputs, getSize(), false);
    const auto own = static_cast<std::size_t>(getRank());
    if (outputs[own].numel() != inputs[own].numel()) {
      refuse(call, "the part for this rank itself differs in size");
    }
    check_tensors(call, {outputs[0], inputs[0]});
    const auto results = packed_results(call, outputs);
    Tensors given;
    for (const auto& input : inputs) given.push_back(packed(input));
    const auto begin = [&](dl_comm* comm, CollectiveWork& work) {
      for (int step = 1; step < getSize(); ++step) {
        const int to = (getRank() + step) % getSize(),
                  from = (getRank() - step + getSize()) % getSize();
        const Moved in(given[static_cast<std::size_t>(to)]);
        const Moved out(results[static_cast<std::size_t>(from)]);
        // Empty ones, too: ranks that do not agree on who has nothing to say are told so, and not
        // given the next call's data.
        auto result =
            dl_irecv(comm, out.data, out.count, out.dtype, from, kExchangeTag, work.part());
        if (result == DL_OK) {
          result = dl_isend(comm, in.data, in.count, in.dtype, to, kExchangeTag, work.part());
        }
        if (result != DL_OK) return result;
      }
      return DL_OK;
    };
    const auto after = [=] {
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        put_back(i == own ? given[i] : results[i], outputs[i]);
      }
      finish_copies(outputs[own]);
    };
    Tensors used = given;
    used.insert(used.end(), results.begin(), results.end());
    return start(c10d::OpType::ALLTOALL, outputs, used, begin, after);
  }

  const std::shared_ptr<Comm> comm_;
  const std::uint64_t round_ = comm_->round();
  Completer completer_;  // ends before the group lets go of the communicator

  static inline std::mutex all_mutex;
  static inline std::set<Group*> all;
};

c10::intrusive_ptr<Base> make_group(const c10d::DistributedBackendOptions& given) {
  return c10::make_intrusive<Group>(communicator(given));
}

// Rank 0's bytes become everybody's.
void share_from_first(Comm& comm, const Tensors& tensors) {
  std::vector<void*> data;
  std::vector<std::size_t> counts;
  for (const auto& tensor : tensors) {
    data.push_back(tensor.data_ptr());
    counts.push_back(tensor.nbytes());
  }
  const std::lock_guard lock(comm.starting);
  if (!tensors.empty()) follow_stream(comm, tensors[0]);
  comm.check(dl_broadcast_list(comm.get(), data.size(), data.data(), counts.data(), DL_UINT8, 0));
}

// What takes an elastic process from round to round: for dlelastic_torch.
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

}  // namespace
}  // namespace dlring_torch

PYBIND11_MODULE(dlring_torch, module) {
  namespace py = pybind11;
  module.doc() = "torch.distributed's back end \"dlring\": collectives by libdlring";
  py::register_exception<dlring_torch::PeerLost>(module, "PeerLost", PyExc_RuntimeError);
  dlring_torch::bind_rounds(module);
  py::module::import("atexit").attr("register")(
      py::cpp_function(&dlring_torch::Group::close_all, py::call_guard<py::gil_scoped_release>()));
  const py::object backends = py::module::import("torch.distributed").attr("Backend");
  const py::cpp_function create(
      [](const c10d::DistributedBackendOptions& given, const py::object& own) {
        if (!own.is_none()) throw std::invalid_argument("dlring: there are no options of its own");
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
