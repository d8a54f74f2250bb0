// EncodedAverage: the average of all ranks' float32 values, which move in a wire codec, with error
// feedback (Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy et
// al., "Error Feedback Fixes SignSGD", ICML 2019). Each rank adds what earlier calls lost, its
// residual, to its values, and keeps what this call loses. Each rank owns a slice of the elements.
// Pure; the caller moves the data between the steps:
//
//   encode()   the own values for the owner of each slice, end to end
//              all_to_all of slices(): the values of the own slice of all ranks come
//   add_up()   decodes them, adds them in the order of ranks, and encodes the average
//              all_gather of slices()
//   decode()   the averages of all slices, alike on all ranks
//
// The owner does not encode its own values of its slice for itself. What the average loses becomes
// the owner's residual there, times the number of ranks, because an average divides by it. So one
// residual for each element is all the state, whichever rank owns the element.
#pragma once

#include <cstddef>
#include <vector>

#include "ring/call/plane.h"
#include "ring/kernels/wire_codec.h"

namespace dlaunch {

class EncodedAverage {
 public:
  EncodedAverage(WireCodec codec, std::size_t count, int rank, int ranks);

  // The encoded slices, end to end, in bytes. Blocks do not cross slices.
  const std::vector<Part>& slices() const { return slices_; }
  const Part& own_slice() const { return slices_[own_]; }
  std::size_t bytes() const { return slices_.back().first + slices_.back().count; }

  // `residual` may be null: then nothing is added or kept. A residual that is not finite becomes 0,
  // so that it does not spoil later calls.
  void encode(const float* in, float* residual, std::byte* encoded) const;
  // taken: the own slice of all ranks, end to end, but for this rank's own. average: own_slice().
  void add_up(const std::byte* taken, const float* in, float* residual, std::byte* average) const;
  void decode(const std::byte* encoded, float* out) const;
  // All of it, where there is one rank: nothing is lost.
  static void alone(const float* in, float* residual, std::size_t count, float* out);

 private:
  const WireCodec codec_;
  const std::size_t own_, ranks_;
  std::vector<Part> elements_, slices_;
};

}  // namespace dlaunch
