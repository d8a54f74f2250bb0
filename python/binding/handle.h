// A communicator of libdlring, and what may be done with it when: the objects of Python share it.
// All of it is for who has Python's lock.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <list>
#include <memory>
#include <vector>

#include <dlaunch/elastic.h>
#include <dlaunch/ring.h>

#include "python/binding/call.h"
#include "python/binding/limited.h"

namespace dlaunch::python {

// A call in the background, which owns its arrays until it is done.
struct Operation {
  Call call;
  dl_request* request = nullptr;
  bool waited = false;  // a thread is in dl_wait() for it
  bool done = false;
  dl_result result = DL_OK;
  Ref error_text;
  int lost = -1;
};

// A rank's own bytes of a state: those of an array, or what a sync has put together.
struct OwnBytes {
  std::list<View> array;  // one or none
  std::vector<std::byte> made;
  void* at = nullptr;
  std::size_t bytes = 0;
};

// A state of <dlaunch/elastic.h>, with its samplers and the memory that it knows.
struct StateParts {
  dl_state* state = nullptr;
  OwnBytes own;
  std::vector<dl_sampler*> samplers;
  std::list<View> memory;
};

class Handle {
 public:
  // owner: an object that finalizes the communicator, and has to be there until this has ended.
  // Without one this finalizes it.
  explicit Handle(dl_comm* comm, Ref owner = {});
  // Leaves, as close() does.
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] dl_comm* comm() const { return comm_; }
  [[nodiscard]] bool closed() const { return closed_; }
  // In a child of the process that made it, where nothing can be done with it.
  [[nodiscard]] bool forked() const;

  // For a call of one thread at a time: false, with an exception, while there is another one.
  bool enter(const char* call);
  void leave() { busy_ = alone_ = false; }
  // For what may go on beside calls, but not beyond the communicator's end or its next round.
  bool enter_beside(const char* call);
  void leave_beside() { --beside_; }
  // For the end of it, and its next round: false, with an exception, while there is any call.
  bool enter_alone(const char* call);
  [[nodiscard]] bool is_alone() const { return alone_; }

  // Operations that nobody asks for any more are forgotten once they are done.
  void keep(std::shared_ptr<Operation> operation);
  // An operation that was waited for, or is done.
  void forget(const Operation& operation);
  // Waits for all of them, whatever comes of it.
  void settle();

  void add_group(const std::shared_ptr<Handle>& group);
  // False, with an exception, where one of them is in a call.
  bool close_groups(const char* call);

  void add_state(std::shared_ptr<StateParts> state) { states_.push_back(std::move(state)); }
  void drop_state(const std::shared_ptr<StateParts>& state);

  // Memory of dl_alloc(): while there is some, the communicator is not freed.
  void add_memory() { ++memories_; }
  void drop_memory();

  // Leaves in good order, or by an abort if operations are under way. Between enter_alone() and
  // the end of it.
  void close();

 private:
  bool refuse(const char* call) const;
  bool all_done();
  static void free_state(StateParts& state);
  void free_comm();

  dl_comm* comm_;
  const Ref its_owner_;
  const pid_t owner_;
  bool closed_ = false;
  bool busy_ = false;
  bool alone_ = false;
  int beside_ = 0;
  int memories_ = 0;
  std::vector<std::shared_ptr<Operation>> under_way_;
  std::vector<std::weak_ptr<Handle>> groups_;
  std::vector<std::shared_ptr<StateParts>> states_;
};

// Waits for the operation, at most so many seconds (<0: as long as it takes), or tests it: fills in
// what came of it where it is done. The caller is in beside calls.
void wait_for(Handle& handle, Operation& operation, double seconds = -1);
bool is_done(Handle& handle, Operation& operation);
void take_end(Handle& handle, Operation& operation, dl_result result);

// A call's time in the handle, from the one to the other: false, with an exception, where it is not
// let in.
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
