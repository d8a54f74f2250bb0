// Sums of sparse tensors (COO). First the ranks exchange their numbers of elements; then each rank
// gets all elements, and adds in the order of the ranks.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ring/torch/torch_work.h"

namespace dlring_torch {

class SparseSum {
 public:
  SparseSum(const char* call, const Tensors& tensors, const c10d::ReduceOp& op)
      : call_(call), op_(static_cast<c10d::ReduceOp::RedOpType>(op)) {
    if (tensors.size() != 1) refuse(call, "it takes one tensor, not a list");
    tensor_ = tensors[0];
    check_place(call, tensor_);
    if (tensor_.layout() != c10::kSparse)
      refuse(call, "it takes only sparse tensors in COO format");
    if (op_ != c10d::ReduceOp::SUM && op_ != c10d::ReduceOp::AVG) {
      refuse(call, "a sparse tensor has sums and averages only");
    }
    const at::NoGradGuard quiet;
    const auto own = tensor_.detach().coalesce();
    indices_ = own.indices().contiguous();
    values_ = packed(own.values());
  }

  // Exchanges the numbers of elements; blocks. The caller must hold `starting`.
  void meet(Comm& comm) {
    std::vector<std::int64_t> own = {values_.size(0), tensor_.sparse_dim()};
    own.insert(own.end(), tensor_.sizes().begin(), tensor_.sizes().end());
    const auto ranks = static_cast<std::size_t>(dl_size(comm.get()));
    std::vector<std::int64_t> all(own.size() * ranks);
    comm.check(dl_all_gather(comm.get(), own.data(), all.data(), own.size(), DL_INT64));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto* const theirs = all.data() + rank * own.size();
      if (!std::equal(own.begin() + 1, own.end(), theirs + 1)) {
        refuse(call_, "the sparse tensors of the ranks differ in shape: rank " +
                          std::to_string(rank) + " has another one than this rank");
      }
      counts_.push_back(theirs[0]);
    }
    std::int64_t total = 0;
    for (const auto count : counts_) total += count;
    all_indices_ = at::empty({total * tensor_.sparse_dim()}, indices_.options());
    auto shape = values_.sizes().vec();
    shape[0] = total;
    all_values_ = at::empty(shape, values_.options());
  }

  dl_result begin(const Calls& calls) const {
    const Moved from(indices_), to(all_indices_);
    const auto result = calls(dl_all_gather_v, dl_iall_gather_v, from.data, to.data,
                              elements(tensor_.sparse_dim()).data(), from.dtype);
    if (result != DL_OK) return result;
    const Moved own(values_), all(all_values_);
    const auto rows = all_values_.size(0);
    const auto each = rows == 0 ? 0 : static_cast<std::int64_t>(all.count) / rows;
    return calls(dl_all_gather_v, dl_iall_gather_v, own.data, all.data, elements(each).data(),
                 own.dtype);
  }

  // All elements have come.
  void finish() {
    const at::NoGradGuard quiet;
    std::int64_t at = 0;
    Tensors indices;
    for (const auto count : counts_) {
      const auto size = count * tensor_.sparse_dim();
      indices.push_back(all_indices_.narrow(0, at, size).reshape({tensor_.sparse_dim(), count}));
      at += size;
    }
    auto sum = at::sparse_coo_tensor(at::cat(indices, 1), all_values_, tensor_.sizes(),
                                     values_.options().layout(c10::kSparse))
                   .coalesce();
    if (op_ == c10d::ReduceOp::AVG) divide(sum.values());
    tensor_.copy_(sum);
  }

  Tensors used() const { return {indices_, values_, all_indices_, all_values_}; }

 private:
  void divide(at::Tensor values) const {
    const auto ranks = static_cast<std::int64_t>(counts_.size());
    if (at::isIntegralType(values.scalar_type(), true)) {
      values.div_(ranks, "trunc");  // as libdlring does
    } else {
      values.div_(ranks);
    }
  }
  // The number of libdlring's elements of each rank.
  std::vector<std::size_t> elements(std::int64_t each) const {
    std::vector<std::size_t> all;
    for (const auto count : counts_) all.push_back(static_cast<std::size_t>(count * each));
    return all;
  }

  const char* const call_;
  const c10d::ReduceOp::RedOpType op_;
  at::Tensor tensor_, indices_, values_, all_indices_, all_values_;
  std::vector<std::int64_t> counts_;
};

}  // namespace dlring_torch
