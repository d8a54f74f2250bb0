// A communicator of libdlring, shared by objects of Python, and the calls that it allows at a time.
// All functions need Python's lock.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <dlaunch/elastic.h>
#include <dlaunch/outer.h>
#include <dlaunch/ring.h>

#include "python/binding/call.h"
#include "python/binding/limited.h"

namespace dlaunch::python {

// A background call, which owns its arrays until it is done.
struct Operation {
  Call call;
  dl_request* request = nullptr;
  bool waited = false;  // a thread is in dl_wait() for it
  bool done = false;
  dl_result result = DL_OK;
  Ref error_text;
  int lost = -1;
};

// A rank's own bytes of a state: an array's, or those that a sync has put together.
struct OwnBytes {
  std::list<View> array;  // one or none
  std::vector<std::byte> made;
  void* at = nullptr;
  std::size_t bytes = 0;
};

// A rank's own array of a state.
struct OwnArray {
  View view;
  dl_comm* comm = nullptr;
};

// A state of <dlaunch/elastic.h>, with its samplers and its known memory.
struct StateParts {
  dl_state* state = nullptr;
  OwnBytes own;
  std::vector<dl_sampler*> samplers;
  std::list<OwnArray> memory;
};

// An outer optimizer without an object, and what it uses until it is freed.
struct EndedOuter {
  dl_outer* outer = nullptr;
  std::unique_ptr<std::list<View>> tensors;
  Ref sites;  // or none
};

class Handle {
 public:
  // owner: an object that finalizes the communicator and outlives this. Without one this finalizes
  // it.
  explicit Handle(dl_comm* comm, Ref owner = {});
  // Leaves, as close() does.
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] dl_comm* comm() const { return comm_; }
  [[nodiscard]] bool closed() const { return closed_; }
  // In a forked child of the process that made it, where no call works.
  [[nodiscard]] bool forked() const;

  // Begins a call that only one thread at a time may make. False: sets an exception, because
  // another one is running.
  bool enter(const char* call);
  void leave() {
    if (std::exchange(drops_batch_, false)) drop_batch();
    busy_ = alone_ = false;
  }
  // Begins a call that may run beside others, but not beyond the communicator's end or its next
  // round.
  bool enter_beside(const char* call);
  void leave_beside() { --beside_; }
  // Begins the end of the communicator, or its next round. False: sets an exception, because a call
  // is running.
  bool enter_alone(const char* call);
  [[nodiscard]] bool is_alone() const { return alone_; }
  // Likewise, and ends what does not outlive a round: groups, and an open batch.
  bool leave_round(const char* call);
  // After leave_round(), when the next round has begun or has failed to.
  void enter_round();

  // Keeps an operation, and drops earlier ones without other owners that are done.
  void keep(std::shared_ptr<Operation> operation);
  // Drops an operation that is done or has been waited for.
  void forget(const Operation& operation);
  // Waits for all operations and ignores their results.
  void settle();

  // The open batch keeps its calls until its outermost end, and 0 levels: none is open.
  int batch_levels = 0;
  std::list<Call> batched;
  void drop_batch();
  // When the call of another thread is over.
  void drop_batch_later() { drops_batch_ = true; }
  // Notes that a call of the open batch, if one is open, was refused before the library saw it: the
  // end of the batch fails, too. Returns null.
  PyObject* refused(const char* call);
  const char* refused_in_batch = nullptr;  // the first such call

  void add_group(const std::shared_ptr<Handle>& group);

  void add_state(std::shared_ptr<StateParts> state) { states_.push_back(std::move(state)); }
  void drop_state(const std::shared_ptr<StateParts>& state);

  // The communicator waits for their averages before it ends. free_outer() frees one, but while the
  // next round begins it leaves that to enter_round().
  void add_outer(dl_outer* outer);
  void free_outer(EndedOuter ended);

  // Memory of dl_alloc(): the communicator is not freed before it.
  void add_memory() { ++memories_; }
  void drop_memory();

  // Leaves in good order, or aborts if operations are pending. Call it between enter_alone() and
  // leave().
  void close();

 private:
  // While it exists, the communicator does not end, and no round begins.
  class Frees {
   public:
    explicit Frees(Handle& handle) : handle_(handle) { ++handle_.frees_; }
    ~Frees() {
      --handle_.frees_;
      handle_.frees_.notify_all();
    }
    Frees(const Frees&) = delete;
    Frees& operator=(const Frees&) = delete;

   private:
    Handle& handle_;
  };

  bool refuse(const char* call) const;
  bool all_done();
  // False: sets an exception, because a group is in a call.
  bool close_groups(const char* call);
  void await_frees();
  void free_late();
  void free_state(StateParts& state);
  void free_comm();

  dl_comm* comm_;
  const Ref its_owner_;
  const pid_t owner_;
  bool closed_ = false;
  bool left_ = false;  // close() is over
  bool busy_ = false;
  bool alone_ = false;
  bool drops_batch_ = false;
  int beside_ = 0;
  int memories_ = 0;
  std::vector<std::shared_ptr<Operation>> under_way_;
  std::vector<std::weak_ptr<Handle>> groups_;
  std::vector<std::shared_ptr<StateParts>> states_;
  std::vector<dl_outer*> outers_;
  std::vector<EndedOuter> late_;  // of free_outer()
  std::atomic<int> frees_ = 0;    // threads in Frees
};

// Waits for the operation, at most `seconds` (<0: no limit), or tests it; fills in the result if it
// is done. The caller has called enter_beside().
void wait_for(Handle& handle, Operation& operation, double seconds = -1);
bool is_done(Handle& handle, Operation& operation);
void take_end(Handle& handle, Operation& operation, dl_result result);

// A call's time in the handle, from `enter` to `leave`. False: not let in; an exception is set.
template <bool (Handle::*enter)(const char*), void (Handle::*leave)()>
class Within {
 public:
  Within(Handle& handle, const char* call) : handle_(handle), entered_((handle.*enter)(call)) {}
  ~Within() {
    if (entered_) (handle_.*leave)();
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  Handle& handle_;
  const bool entered_;
};
using Entered = Within<&Handle::enter, &Handle::leave>;
using EnteredBeside = Within<&Handle::enter_beside, &Handle::leave_beside>;

}  // namespace dlaunch::python
