#include "ring/compress/outer_state.h"

#include <algorithm>
#include <utility>

#include "ring/call/slices.h"

namespace dlaunch {
namespace {

constexpr std::size_t kCountBytes = 64;  // room for OuterCounts; the floats stay aligned
static_assert(sizeof(OuterCounts) <= kCountBytes);

}  // namespace

OuterState::OuterState(const OuterRules& rules, std::vector<std::span<float>> tensors)
    : rules_(rules), tensors_(std::move(tensors)) {
  for (const auto& tensor : tensors_) {
    begins_.push_back(elements_);
    elements_ += (tensor.size() + kCodecUnit - 1) / kCodecUnit * kCodecUnit;
  }
  parts_ = slices_of(elements_, rules.fragments, kCodecUnit);
  const std::size_t arrays = rules.momentum > 0 ? 3 : 2;
  shared_bytes_ = kCountBytes + arrays * elements_ * sizeof(float);
  residuals_ = rules.encodes ? elements_ : 0;
  shared_ = std::make_unique<std::byte[]>(shared_bytes_ + residuals_ * sizeof(float));
  anchor_ = reinterpret_cast<float*>(shared_.get() + kCountBytes);
  gradient_ = anchor_ + elements_;
  if (rules.momentum > 0) momentum_ = gradient_ + elements_;
  residual_ = anchor_ + arrays * elements_;
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    std::copy(tensors_[t].begin(), tensors_[t].end(), anchor_ + begins_[t]);
  }
}

std::span<float> OuterState::gradient(int fragment) {
  return {gradient_ + part(fragment).first, part(fragment).count};
}

float* OuterState::residual(int fragment) {
  return residuals_ == 0 ? nullptr : residual_ + part(fragment).first;
}

template <class Body>
void OuterState::for_parts(int fragment, Body body) {
  const std::size_t first = part(fragment).first, end = first + part(fragment).count;
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const std::size_t from = std::max(first, begins_[t]);
    const std::size_t to = std::min(end, begins_[t] + tensors_[t].size());
    if (from < to) body(from, tensors_[t].data() + (from - begins_[t]), to - from);
  }
}

void OuterState::take_gradient(int fragment) {
  std::ranges::fill(gradient(fragment), 0.0F);  // between tensors, too
  for_parts(fragment, [this](std::size_t first, const float* at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) gradient_[first + i] = anchor_[first + i] - at[i];
  });
}

void OuterState::move_anchor(int fragment) {
  const auto [first, count] = part(fragment);
  for (std::size_t i = first; i < first + count; ++i) {
    float move = gradient_[i];
    if (momentum_ != nullptr) {
      momentum_[i] = rules_.momentum * momentum_[i] + move;
      move = rules_.nesterov ? move + rules_.momentum * momentum_[i] : momentum_[i];
    }
    anchor_[i] -= rules_.learning_rate * move;
  }
}

void OuterState::take_anchor(int fragment, float mixing) {
  for_parts(fragment, [&](std::size_t from, float* at, std::size_t some) {
    const float* const anchor = anchor_ + from;
    if (mixing == 0) {
      std::copy_n(anchor, some, at);
      return;
    }
    for (std::size_t i = 0; i < some; ++i) at[i] = mixing * at[i] + (1 - mixing) * anchor[i];
  });
}

}  // namespace dlaunch
