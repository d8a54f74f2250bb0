// "dlring" as a group of c10d: its calls over libdlring's C API.
//
// Collectives start in the order of the calls and end in that order; messages run beside them. A
// group refuses calls that it cannot do before it sends anything, on each rank alike.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <climits>

#include "ring/torch/torch_bootstrap.h"
#include "ring/torch/torch_group_base.h"
#include "ring/torch/torch_lists.h"
#include "ring/torch/torch_monitored.h"
#include "ring/torch/torch_reconfigure.h"
#include "ring/torch/torch_sparse.h"

namespace dlring_torch {

class Group final : public RecoveringGroup {
 public:
  using RecoveringGroup::RecoveringGroup;

  const std::string getBackendName() const override { return "dlring"; }
  // Overrides a function of newer versions.
  void abort() {
    if (const auto at = present()) dl_abort(at->comm->get());
  }
  // Each rank counts for itself, from the first collective on.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return number(); }

#if DLRING_TORCH_FROM(2, 4)
  // -- split_group: the following functions override those of newer versions. With a bound device
  // PyTorch assumes that each back end that splits is NCCL.
  bool supportsSplitting() const { return !this->getBoundDeviceId().has_value(); }
  c10::intrusive_ptr<Base::Options> getBackendOptions() {
    return c10::make_intrusive<Base::Options>("dlring");
  }
  // Only its members call it.
  c10::intrusive_ptr<Base> split(const c10::intrusive_ptr<c10d::Store>& store,
                                 const std::vector<int>& ranks,
                                 const c10::intrusive_ptr<Base::Options>& options) {
    if (std::find(ranks.begin(), ranks.end(), getRank()) == ranks.end()) return {};
    const double limit_s = limit_of(options->timeout);
    std::shared_ptr<Comm> part;
    before_start([&] { part = part_of(comm(), ranks, options->group_name, limit_s); });
    return c10::make_intrusive<Group>(part, GroupOrigin{store, limit_s});
  }
#endif

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    const char* const call = "all_reduce";
    if (!tensors.empty() && tensors[0].layout() != c10::kStrided) {
      return allreduce_sparse(tensors, opts);
    }
    const auto op = op_of(call, opts.reduceOp, only(call, tensors));
    const auto given = reducible_results(call, opts.reduceOp, tensors);
    const Moved x(given[0]);
    return start(
        kind_of(c10d::OpType::ALLREDUCE, opts), tensors, given,
        [&](const Calls& calls) {
          return calls(dl_all_reduce, dl_iall_reduce, x.data, x.data, x.count, x.dtype, op);
        },
        put_all_back(given, tensors));
  }

  // Overrides a function of newer versions.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
    const auto sum = std::make_shared<SparseSum>("all_reduce", tensors, opts.reduceOp);
    before_start([&] { sum->meet(*comm()); }, opts.timeout);
    return start(
        kind_of(c10d::OpType::ALLREDUCE, opts), tensors, sum->used(),
        [&](const Calls& calls) { return sum->begin(calls); }, [sum] { sum->finish(); });
  }

  // One list for each type.
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override {
    const char* const call = "all_reduce_coalesced";
    check_list(call, tensors);
    std::map<std::pair<dl_dtype, dl_op>, TensorList> lists;
    const auto given = reducible_results(call, opts.reduceOp, tensors);
    for (std::size_t i = 0; i < given.size(); ++i) {
      const Moved x(given[i]);
      auto& list = lists[{x.dtype, op_of(call, opts.reduceOp, tensors[i])}];
      list.data.push_back(x.data);
      list.counts.push_back(x.count);
    }
    return start(
        kind_of(c10d::OpType::ALLREDUCE_COALESCED, opts), tensors, given,
        [&](const Calls& calls) {
          for (auto& [kind, list] : lists) {
            const auto result =
                calls(dl_all_reduce_list, dl_iall_reduce_list, list.data.size(), list.data.data(),
                      list.data.data(), list.counts.data(), kind.first, kind.second);
            if (result != DL_OK) return result;
          }
          return DL_OK;
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
        kind_of(c10d::OpType::BROADCAST, opts), tensors, given,
        [&](const Calls& calls) {
          return calls(dl_broadcast, dl_ibroadcast, x.data, x.count, x.dtype, root);
        },
        writes ? put_all_back(given, tensors) : nullptr);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    const char* const call = "reduce";
    const at::Tensor& tensor = only(call, tensors);
    const auto op = op_of(call, opts.reduceOp, tensor);
    const int root = static_cast<int>(opts.rootRank);
    const bool writes = getRank() == root;
    if (writes) check_writable(call, tensor);
    const Tensors given = {multiplied(call, opts.reduceOp, reducible(call, opts.reduceOp, tensor))};
    const Moved x(given[0]);
    return start(
        kind_of(c10d::OpType::REDUCE, opts), tensors, given,
        [&](const Calls& calls) {
          return calls(dl_reduce, dl_ireduce, x.data, writes ? x.data : nullptr, x.count, x.dtype,
                       op, root);
        },
        writes ? put_all_back(given, tensors) : nullptr);
  }

  // The ranks may give tensors of different sizes: each rank's outputs have all sizes.
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override {
    const char* const call = "all_gather";
    const at::Tensor input = packed(only(call, inputs));
    const Tensors& parts = list_of(call, getSize(), outputs, false);
    check_tensors(call, with(parts, input));
    if (parts[static_cast<std::size_t>(getRank())].numel() != input.numel()) {
      refuse(call, "this rank's own output differs in size from the input");
    }
    const at::Tensor flat = flat_like(parts);
    std::vector<std::size_t> counts;
    for (const auto& part : parts) {
      check_writable(call, part);
      counts.push_back(Moved(part).count);
    }
    const Moved in(input), out(flat);
    return start(
        kind_of(c10d::OpType::ALLGATHER, opts), parts, {input, flat},
        [&](const Calls& calls) {
          return calls(dl_all_gather_v, dl_iall_gather_v, in.data, out.data, counts.data(),
                       in.dtype);
        },
        spread(flat, parts));
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    return gather_each("all_gather_into_tensor", kind_of(c10d::OpType::_ALLGATHER_BASE, opts),
                       {output}, {input});
  }

  // Overrides a function of newer versions. Pairs of tensors as above.
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) {
    return gather_each("all_gather_into_tensor_coalesced",
                       kind_of(c10d::OpType::_ALLGATHER_BASE, opts), outputs, inputs);
  }

  // outputs[r][i] is rank r's inputs[i].
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override {
    const char* const call = "all_gather_coalesced";
    check_tensors(call, inputs);
    if (static_cast<int>(outputs.size()) != getSize()) {
      refuse(call, std::to_string(outputs.size()) + " lists of outputs for " +
                       std::to_string(getSize()) + " ranks");
    }
    Tensors parts;
    std::vector<std::size_t> counts;
    for (const auto& list : outputs) {
      check_alike(call, list, inputs, &list == &outputs[static_cast<std::size_t>(getRank())]);
      counts.push_back(0);
      for (const auto& output : list) counts.back() += Moved(output).count;
      parts = joined(std::move(parts), list);
    }
    const at::Tensor own = flattened(inputs), flat = flat_like(parts);
    const Moved in(own), out(flat);
    return start(
        kind_of(c10d::OpType::ALLGATHER_COALESCED, opts), parts, {own, flat},
        [&](const Calls& calls) {
          return calls(dl_all_gather_v, dl_iall_gather_v, in.data, out.data, counts.data(),
                       in.dtype);
        },
        spread(flat, parts));
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override {
    const char* const call = "gather";
    const at::Tensor input = packed(only(call, inputs));
    const int root = static_cast<int>(opts.rootRank);
    Tensors parts;
    at::Tensor flat;
    if (getRank() == root) {
      parts = list_of(call, getSize(), outputs, true);
      check_tensors(call, with(parts, input));
      if (parts[0].numel() != input.numel()) refuse(call, "outputs and input differ in size");
      for (const auto& part : parts) check_writable(call, part);
      flat = flat_like(parts);
    }
    const Moved in(input);
    void* const out = flat.defined() ? flat.data_ptr() : nullptr;
    return start(
        kind_of(c10d::OpType::GATHER, opts), parts,
        flat.defined() ? Tensors{input, flat} : Tensors{input},
        [&](const Calls& calls) {
          return calls(dl_gather, dl_igather, in.data, out, in.count, in.dtype, root);
        },
        spread(flat, parts));
  }

  // Overrides a function of newer versions: on the root one tensor for all.
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input,
                             const c10d::GatherOptions& opts) {
    const char* const call = "gather_into_tensor";
    const int root = static_cast<int>(opts.rootRank);
    Tensors given = {packed(only(call, {input}))};
    if (getRank() == root) {
      check_tensors(call, {output, input});
      check_times_ranks(call, getSize(), output, input, "output", "input");
      given.push_back(packed_result(call, output));
    }
    const Moved in(given[0]);
    void* const out = getRank() == root ? given[1].data_ptr() : nullptr;
    return start(
        kind_of(c10d::OpType::GATHER, opts), {output}, given,
        [&](const Calls& calls) {
          return calls(dl_gather, dl_igather, in.data, out, in.count, in.dtype, root);
        },
        getRank() == root ? put_all_back({given[1]}, {output}) : nullptr);
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& opts) override {
    const char* const call = "scatter";
    const at::Tensor& output = only(call, outputs);
    const int root = static_cast<int>(opts.rootRank);
    at::Tensor flat;
    if (getRank() == root) {
      const Tensors& parts = list_of(call, getSize(), inputs, true);
      check_tensors(call, with(parts, output));
      if (parts[0].numel() != output.numel()) refuse(call, "inputs and output differ in size");
      flat = flattened(parts);
    }
    const auto given = packed_results(call, outputs);
    const Moved out(given[0]);
    const void* const in = flat.defined() ? flat.data_ptr() : nullptr;
    return start(
        kind_of(c10d::OpType::SCATTER, opts), outputs, flat.defined() ? with(given, flat) : given,
        [&](const Calls& calls) {
          return calls(dl_scatter, dl_iscatter, in, out.data, out.count, out.dtype, root);
        },
        put_all_back(given, outputs));
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    const char* const call = "reduce_scatter";
    at::Tensor output = only(call, outputs);
    const Tensors& parts = list_of(call, getSize(), inputs, false);
    check_tensors(call, with(parts, output));
    for (const auto& part : parts) {
      if (part.numel() != parts[0].numel()) return scatter_parts(outputs, parts, opts);
    }
    at::Tensor flat = flattened(parts);
    return _reduce_scatter_base(output, flat, opts);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override {
    return scatter_each("reduce_scatter", kind_of(c10d::OpType::_REDUCE_SCATTER_BASE, opts),
                        {output}, {input}, opts.reduceOp);
  }

  // Overrides a function of newer versions. Pairs of tensors as above.
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) {
    return scatter_each("reduce_scatter_tensor_coalesced",
                        kind_of(c10d::OpType::_REDUCE_SCATTER_BASE, opts), outputs, inputs,
                        opts.reduceOp);
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& out_splits, std::vector<std::int64_t>& in_splits,
                        const c10d::AllToAllOptions& opts) override {
    const char* const call = "all_to_all_single";
    check_tensors(call, {output, input});
    if (!out_splits.empty() || !in_splits.empty()) {
      const Tensors in = {packed(input)}, out = {packed_result(call, output)};
      return exchange(call, kind_of(c10d::OpType::ALLTOALL_BASE, opts), {output}, in[0],
                      counts_of(split_rows(call, getSize(), in[0], in_splits)), out[0],
                      counts_of(split_rows(call, getSize(), out[0], out_splits)),
                      put_all_back(out, {output}));
    }
    if (input.numel() != output.numel() || input.numel() % getSize() != 0) {
      refuse(call, "input and output differ in size, or do not divide by the number of ranks");
    }
    const Tensors given = {packed(input), packed_result(call, output)};
    const Moved in(given[0]), out(given[1]);
    const auto count = in.count / static_cast<std::size_t>(getSize());
    return start(
        kind_of(c10d::OpType::ALLTOALL_BASE, opts), {output}, given,
        [&](const Calls& calls) {
          return calls(dl_all_to_all, dl_iall_to_all, in.data, out.data, count, in.dtype);
        },
        put_all_back({given[1]}, {output}));
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override {
    const char* const call = "all_to_all";
    check_per_rank(call, outputs, getSize(), false);
    check_per_rank(call, inputs, getSize(), false);
    check_tensors(call, {outputs[0], inputs[0]});
    for (const auto& output : outputs) check_writable(call, output);
    const at::Tensor out = flat_like(outputs);
    return exchange(call, kind_of(c10d::OpType::ALLTOALL, opts), outputs, flattened(inputs),
                    counts_of(inputs), out, counts_of(outputs), spread(out, outputs));
  }

  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return start(kind_of(c10d::OpType::BARRIER, opts), {}, {},
                 [](const Calls& calls) { return calls(dl_barrier, dl_ibarrier); });
  }

  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override {
    before_start([] {});
    MonitoredBarrier(*comm(), opts.timeout, wait_all_ranks).run();
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
  struct TensorList {
    std::vector<void*> data;
    std::vector<std::size_t> counts;
  };

  // One all_gather for each pair.
  WorkPtr gather_each(const char* call, const Kind& kind, const Tensors& outputs,
                      const Tensors& inputs) {
    check_pairs(call, outputs, inputs);
    Tensors ins, outs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_times_ranks(call, getSize(), outputs[i], inputs[i], "output", "input");
      ins.push_back(packed(inputs[i]));
      outs.push_back(packed_result(call, outputs[i]));
    }
    return start(
        kind, outputs, joined(ins, outs),
        [&](const Calls& calls) {
          for (std::size_t i = 0; i < ins.size(); ++i) {
            const Moved in(ins[i]), out(outs[i]);
            const auto result =
                calls(dl_all_gather, dl_iall_gather, in.data, out.data, in.count, in.dtype);
            if (result != DL_OK) return result;
          }
          return DL_OK;
        },
        put_all_back(outs, outputs));
  }

  // One reduce_scatter for each pair.
  WorkPtr scatter_each(const char* call, const Kind& kind, const Tensors& outputs,
                       const Tensors& inputs, const c10d::ReduceOp& reduction) {
    check_pairs(call, outputs, inputs);
    Tensors ins, outs;
    std::vector<dl_op> ops;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_times_ranks(call, getSize(), inputs[i], outputs[i], "input", "output");
      ops.push_back(op_of(call, reduction, inputs[i]));
      ins.push_back(multiplied(call, reduction, reducible(call, reduction, inputs[i])));
      outs.push_back(reducible_result(call, reduction, outputs[i]));
    }
    return start(
        kind, outputs, joined(ins, outs),
        [&](const Calls& calls) {
          for (std::size_t i = 0; i < ins.size(); ++i) {
            const Moved in(ins[i]), out(outs[i]);
            const auto result = calls(dl_reduce_scatter, dl_ireduce_scatter, in.data, out.data,
                                      out.count, out.dtype, ops[i]);
            if (result != DL_OK) return result;
          }
          return DL_OK;
        },
        put_all_back(outs, outputs));
  }

  WorkPtr scatter_parts(const Tensors& outputs, const Tensors& parts,
                        const c10d::ReduceScatterOptions& opts) {
    const char* const call = "reduce_scatter";
    if (parts[static_cast<std::size_t>(getRank())].numel() != outputs[0].numel()) {
      refuse(call, "the part for this rank itself differs in size from the output");
    }
    const auto op = op_of(call, opts.reduceOp, outputs[0]);
    const at::Tensor flat =
        multiplied(call, opts.reduceOp, reducible(call, opts.reduceOp, flattened(parts)));
    const Tensors outs = {reducible_result(call, opts.reduceOp, outputs[0])};
    // Of a complex number that it lacks libdlring gets two.
    const bool pairs = parts[0].is_complex() && !flat.is_complex();
    const auto each = pairs ? std::size_t{2} : std::size_t{1};
    std::vector<std::size_t> counts;
    for (const auto& part : parts) counts.push_back(static_cast<std::size_t>(part.numel()) * each);
    const Moved in(flat), out(outs[0]);
    return start(
        kind_of(c10d::OpType::REDUCE_SCATTER, opts), outputs, {flat, outs[0]},
        [&](const Calls& calls) {
          return calls(dl_reduce_scatter_v, dl_ireduce_scatter_v, in.data, out.data, counts.data(),
                       in.dtype, op);
        },
        put_all_back(outs, outputs));
  }

  // The elements of each tensor that libdlring moves.
  static std::vector<std::size_t> counts_of(const Tensors& tensors) {
    std::vector<std::size_t> counts;
    for (const auto& tensor : tensors) counts.push_back(Moved(tensor).count);
    return counts;
  }

  // An all_to_all of parts that may differ. `in` and `out` have this rank's parts end to end.
  WorkPtr exchange(const char* call, const Kind& kind, const Tensors& outputs, const at::Tensor& in,
                   const std::vector<std::size_t>& in_counts, const at::Tensor& out,
                   const std::vector<std::size_t>& out_counts, std::function<void()> after) {
    const auto ranks = static_cast<std::size_t>(getSize()),
               own = static_cast<std::size_t>(getRank());
    if (in_counts.size() != ranks || out_counts.size() != ranks) {
      refuse(call, "the splits do not have a number for each rank");
    }
    if (in_counts[own] != out_counts[own]) {
      refuse(call, "the part for this rank itself differs in size");
    }
    // Where the memory is shows in a pointer, which an empty tensor lacks.
    const at::Tensor shown = in.numel() + out.numel() > 0 ? in : at::empty({1}, in.options());
    const Moved given(shown), taken(out);
    return start(
        kind, outputs, {shown, out},
        [&](const Calls& calls) {
          return calls(dl_all_to_all_v, dl_iall_to_all_v, given.data, in_counts.data(), taken.data,
                       out_counts.data(), given.dtype);
        },
        std::move(after));
  }
};

// reconfigured_first: it has no communicator until reconfigure() makes one. In an elastic process
// it has that of its round.
inline c10::intrusive_ptr<Group> group_for(const c10d::DistributedBackendOptions& given,
                                           bool reconfigured_first) {
  GroupOrigin origin{given.store, limit_of(given.timeout), given.global_ranks_in_group.empty()};
  const auto whole = world.lock();
  if (reconfigured_first && !(whole && whole->elastic)) {
    return c10::make_intrusive<Group>(given.group_rank, given.group_size, std::move(origin));
  }
  auto comm = communicator(given);
  origin.is_world = comm == world.lock();
  return c10::make_intrusive<Group>(std::move(comm), std::move(origin));
}

}  // namespace dlring_torch
