// StreamWatch: a thread that waits for calls that have returned when their stream had them. The
// first such call makes it; it takes the calls in order.
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
    Duration limit{};  // from the moment its stream reaches it
    CallEvents events;
    std::function<void(bool failed)> ended;
  };
  // Blocks until the call is done or has failed; passes a failure to all ranks.
  using Await = std::function<Result<void>(const Watched&)>;

  explicit StreamWatch(CUcontext context, Await await)
      : context_(context), await_(std::move(await)) {}
  // Waits for pending calls as settle() does: settle first, or raise the failure that ends all.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  // For the next call, in the current context. Waits while kUnderWay calls are pending.
  Result<CallEvents> events();
  Result<void> add(Watched watched);
  // Waits until all calls are done or have failed. False: one has failed.
  bool settle();

 private:
  static constexpr std::size_t kUnderWay = 64;
  void main();

  const CUcontext context_;
  const Await await_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Watched> under_way_;  // the watch waits for the first one
  std::vector<CallEvents> unused_;
  bool failed_ = false, closing_ = false;
  std::thread thread_;
};

}  // namespace dlaunch
