// Background: a thread that carries out the operations pushed to it, made when the first one comes.
// While none is under way it sleeps and touches nothing, so that the caller's own thread may.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/result.h"
#include "ring/call/operation.h"

namespace dlaunch {

class Background {
 public:
  // serve(queue) takes operations, finishes each, and returns when none is left.
  using Serve = std::function<void(OperationQueue&)>;
  explicit Background(Serve serve) : serve_(std::move(serve)) {}
  ~Background() { stop({.code = Errc::aborted, .what = "the communicator has ended"}); }
  // What is under way must come to an end by itself: raise the abort flag first. What has not begun
  // ends with `why`.
  void stop(const Error& why);
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  Result<void> push(std::shared_ptr<Operation> operation);
  bool busy() const { return queue_ != nullptr && queue_->busy(); }

 private:
  void main();

  const Serve serve_;
  std::unique_ptr<OperationQueue> queue_;
  std::thread thread_;
};

}  // namespace dlaunch
