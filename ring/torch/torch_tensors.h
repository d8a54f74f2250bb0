// Tensors as libdlring takes them. What it does not take is refused in one line.
#pragma once

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlaunch/ring.h>

namespace dlring_torch {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

[[noreturn]] inline void refuse(const char* call, const std::string& why) {
  throw std::invalid_argument(std::string("dlring: ") + call + ": " + why);
}

inline void check_tensors(const char* call, const Tensors& tensors) {
  if (tensors.empty()) refuse(call, "no tensor was given");
  for (const auto& tensor : tensors) {
    if (tensor.layout() != c10::kStrided)
      refuse(call, "a tensor is sparse: give tensor.to_dense()");
    if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) {
      refuse(call, "a tensor is on " + tensor.device().str() + ": give one on the CPU or on cuda");
    }
    if (tensor.scalar_type() != tensors[0].scalar_type() ||
        tensor.device() != tensors[0].device()) {
      refuse(call, "the tensors differ in type or device");
    }
  }
}

inline const at::Tensor& only(const char* call, const Tensors& tensors) {
  check_tensors(call, tensors);
  if (tensors.size() != 1) refuse(call, "one tensor is wanted, not a list");
  return tensors[0];
}

// What libdlring is given for a tensor: contiguous memory, so a copy for one that is not. Of one
// that is written to, the copy is to be put back.
inline at::Tensor packed(const at::Tensor& tensor) { return tensor.contiguous(); }

inline void check_writable(const char* call, const at::Tensor& tensor) {
  if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) return;
  refuse(call, "elements of a tensor share their memory (expand?): give tensor.clone()");
}

inline at::Tensor packed_result(const char* call, const at::Tensor& tensor) {
  check_writable(call, tensor);
  return packed(tensor);
}

inline Tensors packed_results(const char* call, const Tensors& tensors) {
  Tensors all;
  for (const auto& tensor : tensors) all.push_back(packed_result(call, tensor));
  return all;
}

inline void put_back(const at::Tensor& packed, at::Tensor tensor) {
  const at::NoGradGuard quiet;
  if (!packed.is_same(tensor)) tensor.copy_(packed);
}

inline Tensors with(Tensors tensors, const at::Tensor& one) {
  tensors.push_back(one);
  return tensors;
}

// DL_DTYPE_ANY_INT: none.
inline dl_dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kChar:
      return DL_INT8;
    case at::kByte:
    case at::kBool:
      return DL_UINT8;
    case at::kInt:
      return DL_INT32;
    case at::kLong:
      return DL_INT64;
    case at::kHalf:
      return DL_FLOAT16;
    case at::kBFloat16:
      return DL_BFLOAT16;
    case at::kFloat:
      return DL_FLOAT32;
    case at::kDouble:
      return DL_FLOAT64;
    default:
      return DL_DTYPE_ANY_INT;
  }
}

// What is only moved may have any type: where libdlring has none, it is bytes.
struct Moved {
  explicit Moved(const at::Tensor& tensor)
      : data(tensor.data_ptr()),
        dtype(dtype_of(tensor)),
        count(static_cast<std::size_t>(tensor.numel())) {
    if (dtype != DL_DTYPE_ANY_INT) return;
    dtype = DL_UINT8;
    count *= static_cast<std::size_t>(tensor.element_size());
  }
  void* data;
  dl_dtype dtype;
  std::size_t count;
};

struct Reduced : Moved {
  Reduced(const char* call, const at::Tensor& tensor) : Moved(tensor) {
    if (dtype_of(tensor) == DL_DTYPE_ANY_INT) {
      refuse(call, std::string("no reduction of ") + c10::toString(tensor.scalar_type()));
    }
  }
};

// Of truth values a sum is "any" and a product "all".
inline dl_op op_of(const char* call, const c10d::ReduceOp& op, const at::Tensor& tensor) {
  const bool truth = tensor.scalar_type() == at::kBool;
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return truth ? DL_MAX : DL_SUM;
    case c10d::ReduceOp::AVG:
      if (truth) refuse(call, "truth values have no average");
      return DL_AVG;
    case c10d::ReduceOp::PRODUCT:
      return truth ? DL_MIN : DL_PRODUCT;
    case c10d::ReduceOp::MIN:
      return DL_MIN;
    case c10d::ReduceOp::MAX:
      return DL_MAX;
    case c10d::ReduceOp::BAND:
      return DL_BAND;
    case c10d::ReduceOp::BOR:
      return DL_BOR;
    case c10d::ReduceOp::BXOR:
      return DL_BXOR;
    default:
      refuse(call, "this reduction (PREMUL_SUM?) is one of NCCL's own");
  }
}

// Room for the tensors one behind the other.
inline at::Tensor flat_like(const Tensors& tensors) {
  std::int64_t count = 0;
  for (const auto& tensor : tensors) count += tensor.numel();
  return at::empty({count}, tensors[0].options());
}

inline void copy_flat(const at::Tensor& flat, const Tensors& tensors, bool into_flat) {
  const at::NoGradGuard quiet;
  std::int64_t at = 0;
  for (const auto& tensor : tensors) {
    auto part = flat.narrow(0, at, tensor.numel());
    at += tensor.numel();
    if (into_flat) {
      part.copy_(tensor.reshape({-1}));
    } else {
      at::Tensor(tensor).copy_(part.reshape(tensor.sizes()));
    }
  }
}

// The lists that c10d's calls take have one entry for each rank.
inline void check_per_rank(const char* call, const Tensors& tensors, int size, bool alike) {
  check_tensors(call, tensors);
  if (static_cast<int>(tensors.size()) != size) {
    refuse(call,
           std::to_string(tensors.size()) + " tensors for " + std::to_string(size) + " ranks");
  }
  for (const auto& tensor : tensors) {
    if (alike && tensor.numel() != tensors[0].numel()) refuse(call, "the tensors differ in size");
  }
}

}  // namespace dlring_torch
