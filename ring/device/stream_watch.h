// StreamWatch: a thread that waits for the calls that their callers do not wait for, because their
// stream has them. Made when the first one comes; takes them in the order in which they were given.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ring/call/plane.h"
#include "ring/device/device_memory.h"

namespace dlaunch {

// Events in a call's stream, on both sides of it.
struct CallEvents {
  DeviceEvent begun, passed;
};

class StreamWatch {
 public:
  struct Watched {
    Call call;         // without its lists, which were the caller's
    Duration limit{};  // from when its stream comes to it
    CallEvents events;
    std::function<void(bool failed)> ended;
  };
  // Blocks until the call is done or has failed; makes the failure everybody's.
  using Await = std::function<Result<void>(const Watched&)>;

  explicit StreamWatch(CUcontext context, Await await)
      : context_(context), await_(std::move(await)) {}
  // settle() first, or the failure that ends all: it waits like that.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  // For the next call, in the current context. Waits while there are kUnderWay.
  Result<CallEvents> events();
  Result<void> add(Watched watched);
  // Until all that were given are done or have failed. False: one of them has failed.
  bool settle();

 private:
  static constexpr std::size_t kUnderWay = 64;
  void main();

  const CUcontext context_;
  const Await await_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Watched> under_way_;  // the first one is being waited for
  std::vector<CallEvents> unused_;
  bool failed_ = false, closing_ = false;
  std::thread thread_;
};

}  // namespace dlaunch
