// Hooks for GradientBucketer. The gradients become averages over the ranks.
//
//   dl::CompressedBuckets hook(comm, dl::Codec::int4, elements);    // all gradients together
//   dl::GradientBucketer<float> bucketer(comm, gradients, {}, std::ref(hook));
//
// CompressedBuckets: the gradients travel in a codec, with error feedback: dl_compressed_average().
//
// PowerSgdBuckets: the gradient of a matrix travels as a product of two matrices of low rank
// (Vogels et al., "PowerSGD", NeurIPS 2019); for n x m elements and rank r these are r (n + m)
// elements. What the product lacks is added to the next gradient. A gradient with an infinity or a
// NaN on one rank becomes NaN on all, as a whole; what the hook keeps of it then begins again, so
// that the next step is an ordinary one.
//
//   dl::PowerSgdBuckets hook(comm, {{512, 784}, {1, 512}, {10, 512}, {1, 10}}, {.rank = 2});
//
// SomeBuckets: the average is over once some ranks have given their gradients, and late ones are
// dropped or carried into a later step: dl_all_reduce_some(). The calls run within finish().
//
//   dl::SomeBuckets<float> hook(comm, options);
//   for each step:
//     if (hook.late()) hook.skip();                          // this rank computes no gradients
//     else for i from last to first: compute gradients[i]; bucketer.ready(i);
//     bucketer.finish();
//
// A hook belongs to one bucketer, and outlives it. Its memory between two steps is part of the
// state of a training: residual() and errors() differ between ranks, and shared() and steps() do
// not. Gradients in host memory only: for the memory of a GPU a hook throws DL_ERR_UNSUPPORTED.
#pragma once

#if __cplusplus <= 201703L
#error "<dlaunch/bucket_hooks.hpp> needs C++20: compile with -std=c++20"
#else

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dlaunch/bucketer.hpp"
#include "dlaunch/ring.hpp"

namespace dl {

namespace detail {

template <class T>
void check_host_memory(const GradientBucket<T>& bucket) {
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
    if (bucket.tensors[i].empty() || dl_gpu_of(bucket.tensors[i].data()) < 0) continue;
    throw Error(DL_ERR_UNSUPPORTED, "gradient " + std::to_string(bucket.first - i) +
                                        " is in the memory of a GPU, and bucket hooks take host "
                                        "memory only: copy it by dl_copy()");
  }
}
template <class T>
std::size_t elements_of(std::span<const std::span<T>> tensors) {
  std::size_t count = 0;
  for (const auto& tensor : tensors) count += tensor.size();
  return count;
}
template <class T>
std::vector<T> packed(std::span<const std::span<T>> tensors) {
  std::vector<T> values;
  values.reserve(elements_of(tensors));
  for (const auto& tensor : tensors) values.insert(values.end(), tensor.begin(), tensor.end());
  return values;
}
template <class T>
void unpack(std::span<const T> values, std::span<const std::span<T>> tensors) {
  for (const auto& tensor : tensors) {
    std::copy_n(values.begin(), tensor.size(), tensor.begin());
    values = values.subspan(tensor.size());
  }
}

// Values on their way. A destructor of the request waits, and so comes first.
struct Flight {
  std::vector<float> values;
  Request request;

  void begin(Communicator& comm, Codec codec, std::span<float> residual = {}) {
    request = comm.icompressed_average(values, values, codec, residual);
  }
};

}  // namespace detail

class CompressedBuckets {
 public:
  // elements: those of all gradients together.
  CompressedBuckets(Communicator& comm, Codec codec, std::size_t elements)
      : comm_(comm), codec_(codec), residual_(elements) {}

  std::span<float> residual() { return residual_; }

  std::function<bool()> operator()(const GradientBucket<float>& bucket) {
    detail::check_host_memory(bucket);
    if (bucket.number == 0) used_ = 0;
    const std::size_t count = detail::elements_of(bucket.tensors);
    if (count > residual_.size() - used_) {
      throw Error(DL_ERR_INVALID, "CompressedBuckets: the gradients have more than " +
                                      std::to_string(residual_.size()) + " elements");
    }
    auto flight = std::make_shared<detail::Flight>();
    flight->values = detail::packed(bucket.tensors);
    flight->begin(comm_, codec_, std::span(residual_).subspan(used_, count));
    used_ += count;
    return [flight, tensors = bucket.tensors] {
      flight->request.wait();
      detail::unpack<float>(flight->values, tensors);
      return false;
    };
  }

 private:
  Communicator& comm_;
  const Codec codec_;
  std::vector<float> residual_;
  std::size_t used_ = 0;
};

// Of a gradient, whose elements lie row by row. One row: a vector, which travels as it is.
struct MatrixShape {
  std::size_t rows = 1, columns = 0;
};

// min_compression_rate: a matrix travels as it is if its product would not save so many times its
// size. first_step: the steps before it average exact gradients. warm_start: a step begins with the
// factor of the last one, otherwise with numbers that `seed` decides.
struct PowerSgdOptions {
  std::size_t rank = 1;
  std::uint64_t first_step = 1000;
  double min_compression_rate = 2;
  bool error_feedback = true, warm_start = true;
  std::uint64_t seed = 0;
};

class PowerSgdBuckets {
 public:
  // shapes: of each gradient, in their order.
  PowerSgdBuckets(Communicator& comm, const std::vector<MatrixShape>& shapes,
                  const PowerSgdOptions& options = {})
      : comm_(comm), options_(options) {
    if (options.rank < 1 || !(options.min_compression_rate > 0)) {
      throw Error(DL_ERR_INVALID,
                  "PowerSgdBuckets: the rank is at least 1, and min_compression_rate above 0");
    }
    std::size_t errors = 0, shared = 0;
    for (const auto& [rows, columns] : shapes) {
      const std::size_t rank = std::min({options.rank, rows, columns});
      const bool pays =
          static_cast<double>((rows + columns) * rank) * options.min_compression_rate <
          static_cast<double>(rows * columns);
      matrices_.push_back({rows, columns, pays && rows > 1 ? rank : 0, errors, shared});
      errors += matrices_.back().rank > 0 ? rows * columns : 0;
      shared += columns * matrices_.back().rank;
    }
    if (options.error_feedback) errors_.resize(errors);
    shared_.resize(shared);
    for (const Matrix& matrix : matrices_) fill(q_of(matrix), matrix.q);
  }

  std::span<float> errors() { return errors_; }
  std::span<float> shared() { return shared_; }
  std::uint64_t& steps() { return steps_; }

  std::function<bool()> operator()(const GradientBucket<float>& bucket) {
    detail::check_host_memory(bucket);
    if (bucket.number == 0) ++steps_;
    auto run = std::make_shared<Run>();
    for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
      const std::size_t number = bucket.first - i;
      const std::span<float> tensor = bucket.tensors[i];
      if (number >= matrices_.size() || matrices_[number].elements() != tensor.size()) {
        throw Error(DL_ERR_INVALID, "PowerSgdBuckets: gradient " + std::to_string(number) +
                                        " does not have the elements of its shape");
      }
      const bool is_low = matrices_[number].rank > 0 && steps_ > options_.first_step;
      if (is_low) {
        run->low.push_back({matrices_[number], tensor});
        begin(run->low.back());
      } else {
        run->whole.push_back(tensor);
      }
    }
    run->flight.values = detail::packed<float>(run->whole);
    for (const auto& low : run->low) append(run->flight.values, low.p);
    run->flight.begin(comm_, Codec::none);
    return [this, run] { return go_on(*run); };
  }

 private:
  struct Matrix {
    std::size_t rows, columns, rank;  // rank 0: it travels as it is
    std::size_t error, q;             // where its part of the memory begins

    std::size_t elements() const { return rows * columns; }
  };
  // The gradient that is sent is P Q^T. The tensor holds it with the error.
  struct Low {
    Matrix matrix;
    std::span<float> tensor;
    std::vector<float> p = {}, q = {};
  };
  struct Run {
    std::vector<std::span<float>> whole;
    std::vector<Low> low;
    bool has_p = false;
    detail::Flight flight;
  };

  static void append(std::vector<float>& values, std::span<const float> more) {
    values.insert(values.end(), more.begin(), more.end());
  }
  std::span<float> q_of(const Matrix& matrix) {
    return std::span(shared_).subspan(matrix.q, matrix.columns * matrix.rank);
  }

  // Makes P of this rank. The hook's own memory stays as it is until end(): an error may come
  // first.
  void begin(Low& low) const {
    const auto& [rows, columns, rank, error, at] = low.matrix;
    const std::span<const float> last = std::span(shared_).subspan(at, columns * rank);
    auto& q = low.q;
    q.assign(last.begin(), last.end());
    if (!options_.warm_start) fill(q, at);
    make_orthonormal(q, rank, at);
    if (!errors_.empty()) {
      for (std::size_t i = 0; i < low.tensor.size(); ++i) low.tensor[i] += errors_[error + i];
    }
    low.p.assign(rows * rank, 0);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        const float value = low.tensor[r * columns + c];
        for (std::size_t k = 0; k < rank; ++k) low.p[r * rank + k] += value * q[c * rank + k];
      }
    }
  }
  // Makes Q of this rank, for the average of P. If that is not finite, no Q is, on any rank.
  void multiply_back(Low& low, std::span<const float> p) const {
    const auto& [rows, columns, rank, error, at] = low.matrix;
    low.p.assign(p.begin(), p.end());
    if (!is_finite(p)) {
      low.q.assign(low.q.size(), std::numeric_limits<float>::quiet_NaN());
      return;
    }
    make_orthonormal(low.p, rank, at);
    auto& q = low.q;
    q.assign(q.size(), 0);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        const float value = low.tensor[r * columns + c];
        for (std::size_t k = 0; k < rank; ++k) q[c * rank + k] += value * low.p[r * rank + k];
      }
    }
  }
  // Sets the tensor to the product, and the error to what that lacks.
  void end(Low& low) {
    const auto& [rows, columns, rank, error, at] = low.matrix;
    const std::span<float> q = q_of(low.matrix);
    if (!is_finite(q)) {
      std::ranges::fill(low.tensor, std::numeric_limits<float>::quiet_NaN());
      if (!errors_.empty()) std::ranges::fill(std::span(errors_).subspan(error, rows * columns), 0);
      fill(q, at);
      return;
    }
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        float product = 0;
        for (std::size_t k = 0; k < rank; ++k) product += low.p[r * rank + k] * q[c * rank + k];
        const std::size_t i = r * columns + c;
        if (!errors_.empty()) errors_[error + i] = low.tensor[i] - product;
        low.tensor[i] = product;
      }
    }
  }
  bool go_on(Run& run) {
    run.flight.request.wait();
    std::span<const float> values = run.flight.values;
    if (run.has_p) {
      for (auto& low : run.low) {
        const std::span<float> q = q_of(low.matrix);
        std::copy_n(values.begin(), q.size(), q.begin());
        values = values.subspan(q.size());
        end(low);
      }
      return false;
    }
    detail::unpack<float>(values, run.whole);
    values = values.subspan(detail::elements_of<float>(run.whole));
    std::vector<float> qs;
    for (auto& low : run.low) {
      multiply_back(low, values.first(low.p.size()));
      values = values.subspan(low.p.size());
      append(qs, low.q);
    }
    if (qs.empty()) return false;
    run.has_p = true;
    run.flight.values = std::move(qs);
    run.flight.begin(comm_, Codec::none);
    return true;
  }

  // The same numbers on all ranks, between -1 and 1.
  void fill(std::span<float> values, std::uint64_t at) const {
    std::uint64_t state = (options_.seed * 0x9E3779B97F4A7C15U + at) ^ (steps_ << 40U);
    for (float& value : values) {
      state += 0x9E3779B97F4A7C15U;
      std::uint64_t bits = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9U;
      bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBU;
      value = static_cast<float>((bits ^ (bits >> 31U)) >> 40U) / float{1U << 23U} - 1.0F;
    }
  }
  static bool is_finite(std::span<const float> values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
  }
  // A column that the columns before it give, or that is 0, carries nothing, and would stay so for
  // ever: other numbers take its place.
  void make_orthonormal(std::span<float> columns, std::size_t rank, std::uint64_t at) const {
    const std::size_t rows = columns.size() / rank;
    std::vector<float> others(rows);
    for (std::size_t k = 0; k < rank; ++k) {
      for (std::uint64_t tries = 0; !make_column_orthonormal(columns, rank, k) && tries < 8;
           ++tries) {
        fill(others, at + ((1 + k + rank * tries) << 32U));
        for (std::size_t r = 0; r < rows; ++r) columns[r * rank + k] = others[r];
      }
    }
  }
  // Column k, to those before it, by the method of Gram and Schmidt, twice, which makes up for what
  // rounding leaves. False: these give it.
  static bool make_column_orthonormal(std::span<float> columns, std::size_t rank, std::size_t k) {
    const std::size_t rows = columns.size() / rank;
    const auto product_of = [&](std::size_t a, std::size_t b) {
      double sum = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        sum += double{columns[r * rank + a]} * double{columns[r * rank + b]};
      }
      return sum;
    };
    const double before = std::sqrt(product_of(k, k));
    for (std::size_t j = 0; j < 2 * k; ++j) {
      const double along = product_of(j % k, k);
      for (std::size_t r = 0; r < rows; ++r) {
        columns[r * rank + k] -= static_cast<float>(along * double{columns[r * rank + j % k]});
      }
    }
    const double length = std::sqrt(product_of(k, k));
    const bool is_new = length > 1e-6 * before;
    for (std::size_t r = 0; r < rows; ++r) {
      columns[r * rank + k] =
          is_new ? static_cast<float>(double{columns[r * rank + k]} / length) : 0;
    }
    return is_new;
  }

  Communicator& comm_;
  const PowerSgdOptions options_;
  std::vector<Matrix> matrices_;
  std::vector<float> errors_, shared_;
  std::uint64_t steps_ = 0;
};

template <class T>
class SomeBuckets {
 public:
  // The slot of the options is the bucket's number.
  SomeBuckets(Communicator& comm, const SomeOptions& options) : comm_(comm), options_(options) {}

  // Whether other ranks are ahead of this one, or the next averages can take what it has kept.
  bool late() const { return comm_.some_behind() > 0 || !kept_.empty(); }
  // This rank gives no gradients in the step that begins. Call finish() next.
  void skip() { skips_ = true; }
  // Of the last step, by bucket.
  const std::vector<SomeOutcome>& outcomes() const { return outcomes_; }

  std::function<bool()> operator()(const GradientBucket<T>& bucket) {
    detail::check_host_memory(bucket);
    if (bucket.number == 0) {
      gives_ = !std::exchange(skips_, false);
      outcomes_.clear();
    }
    return [this, bucket] {
      average(bucket);
      return false;
    };
  }

 private:
  void average(const GradientBucket<T>& bucket) {
    options_.slot = static_cast<int>(bucket.number);
    std::vector<T> values = detail::packed(bucket.tensors);
    const std::span<T> out = values;
    const auto outcome =
        gives_ ? comm_.all_reduce_some(std::span<const T>(out), out, options_, Op::avg)
               : comm_.all_reduce_some(nullptr, out, options_, Op::avg);
    detail::unpack<T>(values, bucket.tensors);
    if (outcome.fate == DL_FATE_CARRIED) {
      kept_.insert(bucket.number);
    } else if (outcome.fate == DL_FATE_IN) {
      kept_.erase(bucket.number);
    }
    outcomes_.push_back(outcome);
  }

  Communicator& comm_;
  SomeOptions options_;
  std::set<std::size_t> kept_;  // the buckets with gradients that were late
  std::vector<SomeOutcome> outcomes_;
  bool gives_ = true, skips_ = false;
};

}  // namespace dl

#endif  // C++20
