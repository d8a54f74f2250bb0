// Lists of tensors in calls: the checks, and cutting one tensor into a list. ranks: of the group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ring/torch/torch_tensors.h"

namespace dlring_torch {

// Lists in c10d's calls have one entry for each rank.
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

inline void check_pairs(const char* call, const Tensors& outputs, const Tensors& inputs) {
  check_list(call, joined(outputs, inputs));
  if (outputs.size() != inputs.size()) refuse(call, "outputs and inputs differ in number");
  for (std::size_t i = 0; i < inputs.size(); ++i) check_tensors(call, {outputs[i], inputs[i]});
}

inline void check_times_ranks(const char* call, int ranks, const at::Tensor& large,
                              const at::Tensor& small, const std::string& large_name,
                              const std::string& small_name) {
  if (large.numel() == small.numel() * ranks) return;
  refuse(call, "the " + large_name + " does not have the size of the " + small_name +
                   " times the number of ranks");
}

// Checks one rank's outputs for a list of inputs; for this rank's own also the sizes.
inline void check_alike(const char* call, const Tensors& outputs, const Tensors& inputs, bool own) {
  if (outputs.size() != inputs.size()) refuse(call, "outputs and inputs differ in number");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_tensors(call, {outputs[i], inputs[i]});
    check_writable(call, outputs[i]);
    if (own && outputs[i].numel() != inputs[i].numel()) {
      refuse(call, "one of this rank's own outputs differs in size from its input");
    }
  }
}

// The one list in `lists`.
inline const Tensors& list_of(const char* call, int ranks, const TensorLists& lists, bool alike) {
  if (lists.size() != 1) refuse(call, "it takes one list of tensors");
  check_per_rank(call, lists[0], ranks, alike);
  return lists[0];
}

// Splits the first dimension into these sizes; no sizes: equal parts.
inline Tensors split_rows(const char* call, int ranks, const at::Tensor& tensor,
                          const std::vector<std::int64_t>& sizes) {
  const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (sizes.empty()) {
    if (rows % ranks != 0) refuse(call, "the rows do not divide by the number of ranks");
    return split_rows(call, ranks, tensor,
                      std::vector(static_cast<std::size_t>(ranks), rows / ranks));
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

}  // namespace dlring_torch
