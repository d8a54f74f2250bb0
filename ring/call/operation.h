// Operations: calls in the background, and the queue that takes them to the thread that carries
// them out.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/call/plane.h"

namespace dlaunch {

inline constexpr int kAnySource = -1;

// Tags of the library's own messages, which no call of the program can give: those of
// all_reduce_some.
inline constexpr int kSomePartTag = -2, kSomeResultTag = -3;
constexpr bool is_library_tag(int tag) { return tag == kSomePartTag || tag == kSomeResultTag; }

// A point-to-point call with arguments already checked.
struct Message {
  const void* send = nullptr;  // exactly one of send and recv is set; may be null if count == 0
  void* recv = nullptr;
  bool is_send = false;
  std::size_t count = 0;
  dl_dtype dtype = DL_UINT8;
  int peer = -1;  // for a receive also kAnySource
  int tag = 0;
  TimePoint deadline = kNever;
  int source = -1;  // for a receive that is done: the sender
};

// Host memory that replaces a message's buffer on a GPU.
struct StagedMessage {
  std::shared_ptr<void> host;  // null: the buffer is the host's own
  void* device = nullptr;      // for a receive: the destination of the data
  std::size_t bytes = 0;
  void* stream = nullptr;  // the stream that the message was started with
};

// The pending operations of one communicator, and how to wait for some. All threads of a process
// wait on the same condition, so that one can wait for operations of several communicators.
class Completions {
 public:
  void begun() { ++under_way_; }
  // Who sees that the operation is done sees also that it is no longer under way. This object may
  // end as soon as `done` is set.
  void ended(std::atomic<bool>& done) {
    {
      const std::lock_guard lock(common().mutex);
      --under_way_;
      done.store(true, std::memory_order_release);
    }
    common().changed.notify_all();
  }
  int under_way() const { return under_way_; }
  template <class Ready>
  static void wait(Ready ready) {
    std::unique_lock lock(common().mutex);
    common().changed.wait(lock, ready);
  }
  template <class Ready>
  static void wait_until(TimePoint deadline, Ready ready) {
    std::unique_lock lock(common().mutex);
    common().changed.wait_until(lock, deadline, ready);
  }

 private:
  struct Common {
    std::mutex mutex;
    std::condition_variable changed;
  };
  static Common& common();

  std::atomic<int> under_way_{0};
};

// A call with copies of its arguments, because the caller's own may end before the call runs.
struct KeptCall {
  KeptCall() = default;
  KeptCall(const KeptCall&) = delete;  // `call` points to the copies
  KeptCall& operator=(const KeptCall&) = delete;
  void keep(const Call& given, int ranks);

  Call call;
  std::vector<std::size_t> counts;
  Splits splits;
  ShardInput shards;
  Compression compression;
  TensorList list;
  bool on_device = false;  // its memory is a GPU's, where a caller has asked for that
};

struct Operation : KeptCall {
  explicit Operation(Completions& completions) : completions_(completions) { completions.begun(); }

  bool is_message = false;
  Message message;
  StagedMessage staged;
  std::shared_ptr<void> keeps;  // what the message sends, until it is done

  bool done() const { return done_.load(std::memory_order_acquire); }
  const Result<void>& outcome() const { return outcome_; }  // once done
  void finish(Result<void> outcome) {
    outcome_ = std::move(outcome);
    keeps.reset();
    completions_.ended(done_);
  }

 private:
  Completions& completions_;
  std::atomic<bool> done_{false};
  Result<void> outcome_;
};

// Thread-safe. One side pushes, the other takes.
class OperationQueue {
 public:
  static Result<std::unique_ptr<OperationQueue>> make();

  void push(std::shared_ptr<Operation> operation);
  // The next operation; null: none now.
  std::shared_ptr<Operation> take();
  // Blocks until there is one, or the queue is closed. False: neither has happened within `most`.
  bool wait(Duration most);
  // The taker has no operation under way. From the first push() on the queue is busy until then.
  void settle();
  bool busy() const;
  void close();
  bool closed() const;
  int event() const { return event_.get(); }  // readable while there is one

 private:
  explicit OperationQueue(UniqueFd event) : event_(std::move(event)) {}
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Operation>> waiting_;
  bool closed_ = false;
  bool busy_ = false;
  UniqueFd event_;
};

}  // namespace dlaunch
