#include "ring/compress/encoded_average.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ring/call/slices.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {
namespace {

// What the steps handle at a time, so that it stays in a cache.
constexpr std::size_t kPiece = 4096;
static_assert(kPiece % kCodecUnit == 0);
using Piece = std::array<float, kPiece>;

// Calls body(first, count) for each piece of so many elements.
template <class Body>
void for_pieces(std::size_t count, Body body) {
  for (std::size_t at = 0; at < count; at += kPiece) body(at, std::min(kPiece, count - at));
}

void add_residual(const float* in, const float* residual, std::size_t count, float* sum) {
  for (std::size_t i = 0; i < count; ++i)
    sum[i] = residual != nullptr ? in[i] + residual[i] : in[i];
}

// residual = factor * (exact - encoded)
void keep_lost(const float* exact, const float* encoded, std::size_t count, float factor,
               float* residual) {
  for (std::size_t i = 0; i < count; ++i) {
    const float lost = factor * (exact[i] - encoded[i]);
    residual[i] = std::isfinite(lost) ? lost : 0.0F;
  }
}

}  // namespace

EncodedAverage::EncodedAverage(WireCodec codec, std::size_t count, int rank, int ranks)
    : codec_(codec),
      own_(static_cast<std::size_t>(rank)),
      ranks_(static_cast<std::size_t>(ranks)),
      elements_(slices_of(count, ranks, kCodecUnit)) {
  std::vector<std::size_t> counts;
  for (const Part& part : elements_) counts.push_back(encoded_bytes(codec, part.count));
  slices_ = parts_of(counts.data(), ranks);
}

void EncodedAverage::encode(const float* in, float* residual, std::byte* encoded) const {
  Piece sum, back;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == own_) continue;
    for_pieces(elements_[r].count, [&](std::size_t at, std::size_t count) {
      const std::size_t first = elements_[r].first + at;
      std::byte* const to = encoded + slices_[r].first + encoded_bytes(codec_, at);
      float* const kept = residual != nullptr ? residual + first : nullptr;
      add_residual(in + first, kept, count, sum.data());
      encode_floats(codec_, sum.data(), count, to);
      if (kept == nullptr) return;
      decode_floats(codec_, to, count, back.data());
      keep_lost(sum.data(), back.data(), count, 1, kept);
    });
  }
}

void EncodedAverage::add_up(const std::byte* taken, const float* in, float* residual,
                            std::byte* average) const {
  const std::size_t bytes = own_slice().count;
  std::vector<Piece> values(ranks_);
  std::vector<const void*> operands;
  operands.reserve(ranks_);
  for (const Piece& piece : values) operands.push_back(piece.data());
  Piece mean, back;
  for_pieces(elements_[own_].count, [&](std::size_t at, std::size_t count) {
    const std::size_t first = elements_[own_].first + at, place = encoded_bytes(codec_, at);
    float* const kept = residual != nullptr ? residual + first : nullptr;
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (r == own_) {
        add_residual(in + first, kept, count, values[r].data());
      } else {
        decode_floats(codec_, taken + r * bytes + place, count, values[r].data());
      }
    }
    reduce(operands, mean.data(), count, DL_FLOAT32, DL_AVG, static_cast<int>(ranks_));
    encode_floats(codec_, mean.data(), count, average + place);
    if (kept == nullptr) return;
    decode_floats(codec_, average + place, count, back.data());
    keep_lost(mean.data(), back.data(), count, static_cast<float>(ranks_), kept);
  });
}

void EncodedAverage::decode(const std::byte* encoded, float* out) const {
  for (std::size_t r = 0; r < ranks_; ++r) {
    decode_floats(codec_, encoded + slices_[r].first, elements_[r].count, out + elements_[r].first);
  }
}

void EncodedAverage::alone(const float* in, float* residual, std::size_t count, float* out) {
  add_residual(in, residual, count, out);
  if (residual != nullptr) std::fill_n(residual, count, 0.0F);
}

}  // namespace dlaunch
