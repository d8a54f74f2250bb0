// Tensors in a form that libdlring takes: contiguous, and in one of its types. Other tensors are
// refused with one line.
#pragma once

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/version.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlaunch/ring.h>

// Whether PyTorch is of this version or newer.
#define DLRING_TORCH_FROM(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||     \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace dlring_torch {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

[[noreturn]] inline void refuse(const char* call, const std::string& why) {
  throw std::invalid_argument(std::string("dlring: ") + call + ": " + why);
}

inline void check_place(const char* call, const at::Tensor& tensor) {
  if (tensor.device().is_cpu() || tensor.device().is_cuda()) return;
  refuse(call, "a tensor is on " + tensor.device().str() + ": give a tensor on the CPU or on cuda");
}

// Their types may differ.
inline void check_list(const char* call, const Tensors& tensors) {
  if (tensors.empty()) refuse(call, "no tensor was given");
  for (const auto& tensor : tensors) {
    if (tensor.layout() != c10::kStrided)
      refuse(call, "a tensor is sparse: give tensor.to_dense()");
    check_place(call, tensor);
    if (tensor.device() != tensors[0].device()) refuse(call, "the tensors differ in device");
  }
}

inline void check_tensors(const char* call, const Tensors& tensors) {
  check_list(call, tensors);
  for (const auto& tensor : tensors) {
    if (tensor.scalar_type() != tensors[0].scalar_type()) {
      refuse(call, "the tensors differ in type");
    }
  }
}

inline const at::Tensor& only(const char* call, const Tensors& tensors) {
  check_tensors(call, tensors);
  if (tensors.size() != 1) refuse(call, "it takes one tensor, not a list");
  return tensors[0];
}

// The tensor for libdlring: contiguous memory, so a copy if it is not contiguous, or if PyTorch has
// put off its conjugation or negation. If libdlring writes to the copy, copy it back.
inline at::Tensor packed(const at::Tensor& tensor) {
  return tensor.resolve_conj().resolve_neg().contiguous();
}

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

// Whether `packed` shares its memory with the tensor.
inline bool is_there(const at::Tensor& packed, const at::Tensor& tensor) {
  return packed.is_alias_of(tensor);
}

inline void put_back(const at::Tensor& packed, at::Tensor tensor) {
  if (is_there(packed, tensor)) return;
  const at::NoGradGuard quiet;
  const bool pairs = tensor.is_complex() && !packed.is_complex();
  tensor.copy_(pairs ? at::view_as_complex(packed) : packed);
}

inline Tensors with(Tensors tensors, const at::Tensor& one) {
  tensors.push_back(one);
  return tensors;
}

inline Tensors joined(Tensors first, const Tensors& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
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
    case at::kComplexFloat:
      return DL_COMPLEX64;
    case at::kComplexDouble:
      return DL_COMPLEX128;
#if DLRING_TORCH_FROM(2, 1)
    case at::kFloat8_e4m3fn:
      return DL_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
      return DL_FLOAT8_E5M2;
#endif
#if DLRING_TORCH_FROM(2, 3)
    case at::kUInt32:
      return DL_UINT32;
    case at::kUInt64:
      return DL_UINT64;
#endif
    default:
      return DL_DTYPE_ANY_INT;
  }
}

// Data that are only moved may have any type: bytes for a type that libdlring lacks.
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

inline bool multiplies(const c10d::ReduceOp& op) {
  return static_cast<c10d::ReduceOp::RedOpType>(op) == c10d::ReduceOp::PREMUL_SUM;
}

// The wider type in which libdlring reduces a type; the result is the same.
inline std::optional<at::ScalarType> wider(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  if (type == at::kShort) return at::kInt;
#if DLRING_TORCH_FROM(2, 3)
  if (type == at::kUInt16) return at::kInt;
#endif
#if DLRING_TORCH_FROM(2, 2)
  // Products of 8 bits would be rounded before they are added, and on GPUs NCCL has no such sums.
  const bool as_it_is =
      dtype_of(tensor) != DL_DTYPE_ANY_INT && tensor.device().is_cpu() && !multiplies(op);
  if (c10::isFloat8Type(type) && !as_it_is) return at::kFloat;
#endif
  return std::nullopt;
}

// The form for a reduction: narrow types that libdlring lacks in wider ones, and complex numbers
// that it lacks as pairs of real ones.
inline at::Tensor reducible(const char* call, const c10d::ReduceOp& op, const at::Tensor& tensor) {
  const at::NoGradGuard quiet;
  if (const auto type = wider(op, tensor)) return tensor.to(*type).contiguous();
  if (dtype_of(tensor) != DL_DTYPE_ANY_INT) return packed(tensor);
  if (tensor.is_complex()) return at::view_as_real(packed(tensor));
  refuse(call, std::string("no reduction of ") + c10::toString(tensor.scalar_type()));
}

inline at::Tensor reducible_result(const char* call, const c10d::ReduceOp& op,
                                   const at::Tensor& tensor) {
  check_writable(call, tensor);
  return reducible(call, op, tensor);
}

// For older versions of PyTorch, which have a list of factors.
template <class Supplement>
at::Tensor factor_of(const Supplement& extra) {
  if constexpr (requires { extra.tensor_factor; }) {
    return extra.tensor_factor;
  } else {
    return extra.tensor_factors.empty() ? at::Tensor() : extra.tensor_factors[0];
  }
}

// Applies the factor of an operation that multiplies first; else returns the tensor.
inline at::Tensor multiplied(const char* call, const c10d::ReduceOp& op, const at::Tensor& given) {
  if (!multiplies(op)) return given;
  const at::NoGradGuard quiet;
  // With real factors: a complex product would make a NaN of an infinite part.
  if (given.is_complex()) return at::view_as_complex(multiplied(call, op, at::view_as_real(given)));
  const auto* const extra =
      dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (extra == nullptr) refuse(call, "PREMUL_SUM has no factor");
  if (!given.is_floating_point()) refuse(call, "PREMUL_SUM is for floating-point numbers");
  const auto factor = factor_of(*extra);
  if (!factor.defined()) return given.mul(extra->double_factor);
  return given.mul(factor.to(given.device(), given.scalar_type()));
}

inline Tensors reducible_results(const char* call, const c10d::ReduceOp& op,
                                 const Tensors& tensors) {
  Tensors all;
  for (const auto& tensor : tensors) {
    all.push_back(multiplied(call, op, reducible_result(call, op, tensor)));
  }
  return all;
}

inline dl_op op_of_truth(const char* call, c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return DL_MAX;
    case c10d::ReduceOp::PRODUCT:
      return DL_MIN;
    case c10d::ReduceOp::AVG:
      refuse(call, "truth values have no average");
    default:
      return DL_OP_ANY_INT;
  }
}

// For truth values a sum is "any" and a product "all".
inline dl_op op_of(const char* call, const c10d::ReduceOp& given, const at::Tensor& tensor) {
  const auto op = static_cast<c10d::ReduceOp::RedOpType>(given);
  const bool sums =
      op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM;
  const bool as_pairs = tensor.is_complex() && dtype_of(tensor) == DL_DTYPE_ANY_INT;
  if (as_pairs && !sums) refuse(call, "complex numbers of this type have sums and averages only");
  if (tensor.is_complex() && !sums && op != c10d::ReduceOp::PRODUCT) {
    refuse(call, "complex numbers have sums, averages and products only");
  }
  if (tensor.scalar_type() == at::kBool) {
    const auto of_truth = op_of_truth(call, op);
    if (of_truth != DL_OP_ANY_INT) return of_truth;
  }
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return DL_SUM;
    case c10d::ReduceOp::AVG:
      return DL_AVG;
    case c10d::ReduceOp::PRODUCT:
      return DL_PRODUCT;
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
      refuse(call, "there is no such reduction");
  }
}

// Room for the tensors, one after the other.
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

inline at::Tensor flattened(const Tensors& tensors) {
  at::Tensor flat = flat_like(tensors);
  copy_flat(flat, tensors, true);
  return flat;
}

}  // namespace dlring_torch
