// GradientBucketer: adds up gradients over all ranks while the caller still computes the rest (Li
// et al., PyTorch Distributed, VLDB 2020).
//
// The bucketer puts the tensors into buckets from the last one to the first, as backpropagation
// finishes them. ready(i) reports that this rank's tensor i is complete. When a bucket is complete,
// and all buckets before it have been launched, its all_reduce runs in the background; in a host's
// shared memory it reads and writes the tensors in place. finish() launches the remaining buckets
// and waits for all.
//
//   dl::GradientBucketer<float> bucketer(comm, gradients);   // once; spans stay valid
//   for each step:
//     for i from last to first: compute gradients[i]; bucketer.ready(i);
//     bucketer.finish();                                     // gradients are summed over ranks
//
// Every rank must have the same tensors. The ranks may call ready() in different orders, because
// buckets are launched in one fixed order. One thread at a time, as for the communicator, which
// must outlive the bucketer. Between the first ready() and finish() the caller may use the
// communicator, too, if all ranks do so at the same place. Errors are dl::Error. After one the step
// is lost, and the next ready() begins another step; a call for a gradient that is already ready,
// or unknown, fails without an effect. reset() drops a step for any other reason.
//
// A hook takes the place of the all_reduce: <dlaunch/bucket_hooks.hpp> has hooks that send fewer
// bytes, or do not wait for slow ranks.
#pragma once

#if __cplusplus <= 201703L
#error "<dlaunch/bucketer.hpp> needs C++20: compile with -std=c++20"
#else

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "dlaunch/ring.hpp"

namespace dl {

struct BucketOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;
  // The first bucket is smaller, so that sending begins early.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  Op op = Op::sum;
};

template <class T>
struct GradientBucket {
  std::size_t number = 0;  // from 0 on, in the order of their launch
  std::size_t first = 0;   // tensors are the gradients first, first - 1, first - 2 ...
  std::span<const std::span<T>> tensors;
};

// Gives the tensors of a bucket their values for all ranks. It begins a background operation, and
// returns what goes on from there: each call waits for what was begun, and returns whether it has
// begun something more. finish() calls these functions of all buckets in turn, until none has more.
// So all ranks make the calls of a hook in the same order. A function that is dropped, after an
// error, must end its operations in its destructor.
template <class T>
using BucketHook = std::function<std::function<bool()>(const GradientBucket<T>&)>;

template <class T>
class GradientBucketer {
 public:
  GradientBucketer(Communicator& comm, std::vector<std::span<T>> gradients,
                   const BucketOptions& options = {}, BucketHook<T> hook = {})
      : comm_(comm),
        op_(options.op),
        hook_(std::move(hook)),
        bucket_of_(gradients.size()),
        ready_(gradients.size()) {
    std::size_t limit = options.first_bucket_bytes, bytes = 0;
    for (std::size_t i = gradients.size(); i-- > 0;) {
      const std::size_t more = gradients[i].size_bytes();
      if (buckets_.empty() || (bytes > 0 && bytes + more > limit)) {
        if (!buckets_.empty()) limit = options.bucket_bytes;
        buckets_.emplace_back().first = i;
        bytes = 0;
      }
      bytes += more;
      buckets_.back().tensors.push_back(gradients[i]);
      bucket_of_[i] = buckets_.size() - 1;
    }
    start_over();
  }

  std::size_t buckets() const { return buckets_.size(); }

  // This rank's gradient i is complete; do not touch it until finish() returns.
  void ready(std::size_t i) {
    if (i >= ready_.size() || ready_[i]) {
      throw Error(DL_ERR_INVALID, "GradientBucketer: gradient " + std::to_string(i) +
                                      (i < ready_.size() ? " is ready already" : " is not known"));
    }
    ready_[i] = true;
    --buckets_[bucket_of_[i]].missing;
    or_reset([&] {
      while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) launch();
    });
  }

  // finish() takes gradients that were not reported as they are.
  void finish() {
    or_reset([&] {
      while (launched_ < buckets_.size()) launch();
      for (auto& bucket : buckets_) bucket.request.wait();
      for (bool more = true; more;) {
        more = false;
        for (auto& bucket : buckets_) {
          if (!bucket.go_on) continue;
          if (!bucket.go_on()) bucket.go_on = nullptr;
          more |= bucket.go_on != nullptr;
        }
      }
    });
    start_over();
  }

  // Waits for the launched buckets, and begins a new step.
  void reset() {
    for (auto& bucket : buckets_) {
      bucket.request = Request();
      bucket.go_on = nullptr;
    }
    start_over();
  }

 private:
  struct Bucket {
    std::vector<std::span<T>> tensors;
    std::size_t first = 0;
    std::size_t missing = 0;  // tensors that are not ready
    Request request;          // without a hook
    std::function<bool()> go_on;
  };

  template <class Body>
  void or_reset(Body body) {
    try {
      body();
    } catch (...) {
      reset();
      throw;
    }
  }

  void launch() {
    Bucket& bucket = buckets_[launched_++];
    if (hook_) {
      bucket.go_on = hook_({launched_ - 1, bucket.first, bucket.tensors});
      return;
    }
    bucket.request = comm_.iall_reduce(std::span<const std::span<T>>(bucket.tensors), op_);
  }

  void start_over() {
    launched_ = 0;
    ready_.assign(ready_.size(), false);
    for (auto& bucket : buckets_) bucket.missing = bucket.tensors.size();
  }

  Communicator& comm_;
  const Op op_;
  const BucketHook<T> hook_;
  std::vector<Bucket> buckets_;  // in the order of their launch
  std::vector<std::size_t> bucket_of_;
  std::vector<bool> ready_;
  std::size_t launched_ = 0;
};

}  // namespace dl

#endif  // C++20
