#include "python/binding/handle.h"

#include <unistd.h>

#include <algorithm>

#include "python/binding/errors.h"

namespace dlaunch::python {

Handle::Handle(dl_comm* comm, Ref owner)
    : comm_(comm), its_owner_(std::move(owner)), owner_(getpid()) {}

Handle::~Handle() {
  close();
  if (comm_ != nullptr) free_comm();
}

bool Handle::forked() const { return getpid() != owner_; }

bool Handle::refuse(const char* call) const {
  const Ref text = Ref::owned(
      closed_    ? PyUnicode_FromFormat("%s: the communicator has been finalized", call)
      : forked() ? PyUnicode_FromFormat(
                       "%s: the communicator belongs to the process that made it, and this one was "
                       "forked from it: call dlaunch.init() here",
                       call)
                 : PyUnicode_FromFormat(
                       "%s: another thread is in a call of this communicator, and only one thread "
                       "at a time may use it: take turns, or use a communicator for each thread",
                       call));
  const Ref utf8 = text ? Ref::owned(PyUnicode_AsUTF8String(text.get())) : Ref();
  if (utf8) raise_closed(PyBytes_AsString(utf8.get()));
  return false;
}

bool Handle::enter(const char* call) {
  if (closed_ || busy_) return refuse(call);
  busy_ = true;
  return true;
}

bool Handle::enter_beside(const char* call) {
  if (closed_ || alone_) return refuse(call);
  ++beside_;
  return true;
}

bool Handle::enter_alone(const char* call) {
  if (closed_ || busy_ || beside_ != 0) return refuse(call);
  busy_ = alone_ = true;
  await_frees();
  return true;
}

bool Handle::leave_round(const char* call) {
  if (!enter_alone(call)) return false;
  if (!close_groups(call)) {
    enter_round();
    return false;
  }
  drop_batch();
  return true;
}

void Handle::enter_round() {
  free_late();
  leave();
}

// Other threads may be in free_outer() or drop_state().
void Handle::await_frees() {
  if (forked()) return;
  while (const int some = frees_.load()) {
    beside_others([&] { frees_.wait(some); });
  }
}

// Python runs a program's finalizers and its other threads where an array is released, and these
// may call this handle. So each function here changes its list before it releases anything, and no
// function holds a place in a list meanwhile.

void Handle::keep(std::shared_ptr<Operation> operation) {
  under_way_.push_back(std::move(operation));
  constexpr long kNoOtherOwner = 2;  // under_way_ and `old`
  // Few are pending at a time.
  for (std::size_t i = 0; i < under_way_.size();) {
    const auto old = under_way_[i];
    if (old.use_count() == kNoOtherOwner && is_done(*this, *old)) {
      forget(*old);
    } else {
      ++i;
    }
  }
}

void Handle::forget(const Operation& operation) {
  const auto is_it = [&](const auto& other) { return other.get() == &operation; };
  const auto at = std::find_if(under_way_.begin(), under_way_.end(), is_it);
  if (at == under_way_.end()) return;
  const auto released_last = std::move(*at);
  under_way_.erase(at);
}

void Handle::settle() {
  const auto all = std::exchange(under_way_, {});
  for (const auto& operation : all) {
    if (!operation->done) wait_for(*this, *operation);
  }
}

void Handle::drop_batch() {
  if (batch_levels == 0) return;
  batch_levels = 0;
  const auto released_last = std::exchange(batched, {});
  if (!forked()) dl_batch_drop(comm_);
}

PyObject* Handle::refused(const char* call) {
  if (batch_levels > 0 && refused_in_batch == nullptr) refused_in_batch = call;
  return nullptr;
}

void Handle::add_group(const std::shared_ptr<Handle>& group) {
  std::erase_if(groups_, [](const auto& old) { return old.expired(); });
  groups_.push_back(group);
}

bool Handle::close_groups(const char* call) {
  const auto groups = std::exchange(groups_, {});
  for (const auto& weak : groups) {
    const auto group = weak.lock();
    if (!group || group->closed_) continue;
    if (!group->enter_alone(call)) {
      groups_.insert(groups_.end(), groups.begin(), groups.end());
      return false;
    }
    group->close();
  }
  return true;
}

void Handle::drop_state(const std::shared_ptr<StateParts>& state) {
  std::erase(states_, state);
  free_state(*state);
}

void Handle::free_state(StateParts& state) {
  dl_state* const it = std::exchange(state.state, nullptr);
  const auto samplers = std::exchange(state.samplers, {});
  const auto memory = std::exchange(state.memory, {});
  const auto array = std::exchange(state.own.array, {});
  const Frees frees(*this);
  if (it != nullptr) beside_others([it] { dl_state_free(it); });
  for (dl_sampler* const sampler : samplers) dl_sampler_free(sampler);
}

void Handle::add_outer(dl_outer* outer) {
  outers_.push_back(outer);
  late_.reserve(late_.size() + outers_.size());  // free_outer() has no way to fail
}

void Handle::free_outer(EndedOuter ended) {
  std::erase(outers_, ended.outer);
  if (alone_ && !closed_) {
    late_.push_back(std::move(ended));
    return;
  }
  const Frees frees(*this);
  beside_others([&] { dl_outer_free(ended.outer); });
}

void Handle::free_late() {
  while (!late_.empty()) {
    const EndedOuter ended = std::move(late_.back());
    late_.pop_back();
    beside_others([&] { dl_outer_free(ended.outer); });
  }
}

bool Handle::all_done() {
  auto all = std::exchange(under_way_, {});
  const bool done = std::all_of(all.begin(), all.end(), [this](const auto& operation) {
    return operation->done || is_done(*this, *operation);
  });
  under_way_.swap(all);
  return done;
}

void Handle::close() {
  if (closed_) return;
  closed_ = true;
  drop_batch();
  const auto is_waiting = [](dl_outer* outer) { return dl_outer_waits(outer) != 0; };
  const bool waits = std::any_of(outers_.begin(), outers_.end(), is_waiting) ||
                     std::any_of(late_.begin(), late_.end(),
                                 [&](const EndedOuter& ended) { return is_waiting(ended.outer); });
  if (!forked() && (waits || !all_done())) dl_abort(comm_);
  settle();
  // With Python's lock, so that no other thread frees one meanwhile: their averages are done, or
  // end by the abort.
  for (dl_outer* const outer : outers_) dl_outer_restored(outer);
  free_late();
  await_frees();
  const auto states = std::exchange(states_, {});
  for (const auto& state : states) free_state(*state);
  left_ = true;
  if (memories_ == 0) free_comm();
}

void Handle::drop_memory() {
  if (--memories_ == 0 && left_ && comm_ != nullptr) free_comm();
}

void Handle::free_comm() {
  dl_comm* const comm = std::exchange(comm_, nullptr);
  if (its_owner_) return;
  const OthersRun others_run;
  dl_finalize(comm);
}

void take_end(Handle& handle, Operation& operation, dl_result result) {
  operation.result = result;
  if (result != DL_OK) {
    const char* const text = dl_last_error(handle.comm());
    operation.lost = dl_peer_lost(handle.comm());
    operation.error_text = Ref::owned(PyBytes_FromString(text));
  }
  operation.done = true;  // before anything is released
  if (result == DL_OK) operation.call.used_op.give_back();
  operation.call.drop();
}

void wait_for(Handle& handle, Operation& operation, double seconds) {
  operation.waited = true;
  int done = 0;
  const dl_result result =
      beside_others([&] { return dl_wait_for(&operation.request, seconds, &done); });
  operation.waited = false;
  if (done != 0) take_end(handle, operation, result);
}

bool is_done(Handle& handle, Operation& operation) {
  if (operation.done) return true;
  if (operation.waited) return false;
  int done = 0;
  const dl_result result = dl_test(&operation.request, &done);
  if (done != 0) take_end(handle, operation, result);
  return done != 0;
}

}  // namespace dlaunch::python
