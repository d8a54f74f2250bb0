// AbortFlag: the one place where a communicator learns that it is over. The control thread raises
// it when a peer is lost, the user by dl_abort(). Every wait in a plane looks at raised() and is
// woken by the wakers registered here. Thread-safe; the first error wins.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

class AbortFlag {
 public:
  // One relaxed load: cheap enough for a spin loop.
  bool raised() const { return raised_.load(std::memory_order_relaxed); }
  // The first error; call only after raised() was true.
  Error error() const;
  // After a failure here: waits for the control thread to learn the root cause, because ranks that
  // fail because of another one end their connections, too. True: the flag has a better error.
  bool told(Duration patience) const;
  // A connection ended: its rank has died, which the control thread will hear, or has failed and
  // told all ranks why before. On a busy machine the control thread must wait for its turn. Without
  // a cause, because only this connection broke, the error comes so much later.
  static constexpr Duration kCauseOfLoss = std::chrono::seconds(3);
  // The time is up: perhaps another rank knows more.
  static constexpr Duration kBetterReason = std::chrono::milliseconds(100);
  // Returns false if it was raised before. Wakers run on the calling thread, before raise returns.
  bool raise(Error error);
  // Wakers must not block or raise. A waker registered after the flag was raised runs at once.
  // What a waker touches must outlive the flag's last raise().
  void on_raise(std::function<void()> wake);

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable now_raised_;
  Error error_;
  std::vector<std::function<void()>> wakers_;
};

}  // namespace dlaunch
