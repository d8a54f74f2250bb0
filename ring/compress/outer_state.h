// OuterState: the arithmetic and the memory of an outer optimizer (<dlaunch/outer.h>). Pure; the
// caller averages gradient() over the ranks.
//
// All tensors lie end to end in one array, each from a multiple of kCodecUnit elements on, and the
// array is cut evenly into fragments. Blocks of a codec end where a tensor or a fragment does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ring/call/plane.h"

namespace dlaunch {

struct OuterRules {
  int fragments = 1;
  float learning_rate = 1, momentum = 0, mixing = 0;
  bool nesterov = false;
  bool encodes = false;  // needs residuals
};

// The beginning of shared().
struct OuterCounts {
  std::uint64_t steps = 0;
  std::uint64_t finished = 0;  // see due_at()
  std::uint64_t form = 0;      // a hash of the options and counts that the memory depends on
  std::uint64_t ranks = 0;     // of the last step, to which the residuals belong
  // With sites: the last merge, the steps after which it was sent, and how many fragments were
  // averaged out of turn at these steps.
  std::uint64_t epoch = 0, merges = 0, merged = 0, finishing = 0;
};

class OuterState {
 public:
  // The anchor is what the tensors have.
  OuterState(const OuterRules& rules, std::vector<std::span<float>> tensors);

  OuterCounts& counts() { return *reinterpret_cast<OuterCounts*>(shared_.get()); }
  const OuterCounts& counts() const { return *reinterpret_cast<OuterCounts*>(shared_.get()); }
  std::span<std::byte> shared() { return {shared_.get(), shared_bytes_}; }
  // Behind shared().
  std::span<float> residual() { return {residual_, residuals_}; }

  const OuterRules& rules() const { return rules_; }
  int fragments() const { return rules_.fragments; }
  // All of them; the momentum is empty where there is none.
  std::span<float> anchor() { return {anchor_, elements_}; }
  std::span<const float> anchor() const { return {anchor_, elements_}; }
  std::span<float> momentum() { return {momentum_, momentum_ == nullptr ? 0 : elements_}; }
  std::span<const float> momentum() const {
    return {momentum_, momentum_ == nullptr ? 0 : elements_};
  }

  // Of a fragment, with the same length; the residual is null if nothing is encoded.
  std::span<float> gradient(int fragment);
  float* residual(int fragment);

  // gradient = anchor - tensors
  void take_gradient(int fragment);
  // A step of the outer SGD with the gradient.
  void move_anchor(int fragment);
  // tensors = mixing * tensors + (1 - mixing) * anchor
  void take_anchor(int fragment, float mixing);

 private:
  // Calls body(first, at, count) for each part of a tensor in the fragment: `count` elements at
  // `at`, from element `first` of the array on.
  template <class Body>
  void for_parts(int fragment, Body body);
  const Part& part(int fragment) const { return parts_[static_cast<std::size_t>(fragment)]; }

  const OuterRules rules_;
  const std::vector<std::span<float>> tensors_;
  std::vector<std::size_t> begins_;  // of the tensors in the array
  std::vector<Part> parts_;          // the fragments
  std::size_t elements_ = 0, shared_bytes_ = 0, residuals_ = 0;
  // Counts, anchor, gradients, and where they are needed momentum and residuals.
  std::unique_ptr<std::byte[]> shared_;
  float *anchor_ = nullptr, *gradient_ = nullptr, *momentum_ = nullptr, *residual_ = nullptr;
};

}  // namespace dlaunch
