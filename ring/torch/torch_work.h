// The Work objects of c10d for running operations. Collectives end in the order in which they
// began: one thread waits for each in turn and completes its Work and its future, which DDP builds
// upon. Messages end in any order: each waiter waits for its own.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ring/torch/torch_hooks.h"
#include "ring/torch/torch_python.h"
#include "ring/torch/torch_tensors.h"

namespace dlring_torch {

// In Python dlaunch.PeerLost, or dlaunch.Corrupt, which is one: a RuntimeError.
struct PeerLost final : torch::PyTorchError {
  PeerLost(const std::string& text, bool is_corrupt) : corrupt(is_corrupt) { msg = text; }
  PythonClass* python_type() override { return class_of_peer_lost(corrupt); }
  bool corrupt;
};

// An elastic program goes on in the next round.
inline bool breaks_round(dl_result result) {
  return result == DL_ERR_PEER_LOST || result == DL_ERR_CORRUPT;
}

// The calling thread's last failure on comm (null: of dl_init) as an exception, whose text ends
// with `more`.
inline std::exception_ptr exception_of(const dl_comm* comm, dl_result result,
                                       const std::string& more = "") {
  // Users look for "Timed out", as PyTorch's own back ends say.
  const std::string text = (result == DL_ERR_TIMEOUT ? "dlring: Timed out waiting: " : "dlring: ") +
                           std::string(dl_last_error(comm)) + more;
  if (breaks_round(result))
    return std::make_exception_ptr(PeerLost(text, result == DL_ERR_CORRUPT));
  if (result == DL_ERR_INVALID) return std::make_exception_ptr(std::invalid_argument(text));
  return std::make_exception_ptr(std::runtime_error(text));
}

using Deadline = std::chrono::steady_clock::time_point;

// Never negative.
inline double seconds_until(Deadline deadline) {
  const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
  return std::max(left.count(), 0.0);
}

// A pending message, and what it needs until it is done.
struct Pending {
  dl_request* request = nullptr;
  at::Tensor tensor;
  at::Tensor result;  // the destination of the received data, if they are not there
  int source = -1;
};

// Owns the communicator, for the group and for each existing Work of it.
class Comm {
 public:
  // whole: the communicator that this is a group of. needed: must live as long as this.
  explicit Comm(dl_comm* comm, std::shared_ptr<Comm> whole = nullptr,
                std::shared_ptr<const void> needed = nullptr)
      : comm_(comm), whole_(std::move(whole)), needed_(std::move(needed)) {}
  ~Comm() {
    const WithoutGil others_run;
    drop_ended(left_);
    if (!left_.empty()) dl_abort(comm_);
    for (auto& pending : left_) (void)dl_wait(&pending->request);
    dl_finalize(comm_);
  }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  dl_comm* get() const { return comm_; }
  std::uint64_t round() const { return dl_round(comm_); }
  // Hold it to start something: only one thread at a time may.
  std::mutex starting;
  // Lock it before `starting` to start a collective; a thread that runs the collective itself holds
  // it to the end. Messages may begin meanwhile.
  std::mutex collectives;
  // Of an elastic process: it goes from round to round, and each default group is for one round.
  bool elastic = false;

  // The calling thread's last failure on this communicator.
  std::exception_ptr exception(dl_result result) {
    if (breaks_round(result)) {
      lost_in_ = round();
      if (whole_ && whole_->round() == round()) whole_->lost_in_ = round();
    }
    return exception_of(comm_, result);
  }
  void check(dl_result result) {
    if (result != DL_OK) std::rethrow_exception(exception(result));
  }
  // Whether a call has found that its round is broken, here or in a group.
  bool lost() const { return lost_in_ == round(); }

  // Waits until no collective is running; each ends by itself, or with its round.
  void begin_work() {
    const std::lock_guard lock(left_mutex_);
    ++under_way_;
  }
  void end_work() {
    const std::lock_guard lock(left_mutex_);
    if (--under_way_ == 0) idle_.notify_all();
  }
  void settle() {
    std::unique_lock lock(left_mutex_);
    idle_.wait(lock, [this] { return under_way_ == 0; });
  }

  // No caller will wait for this message, but its buffer is still in use.
  void leave(std::unique_ptr<Pending> pending) {
    std::vector<std::unique_ptr<Pending>> all;
    {
      const std::lock_guard lock(left_mutex_);
      all.swap(left_);
    }
    all.push_back(std::move(pending));
    drop_ended(all);
    const std::lock_guard lock(left_mutex_);
    for (auto& old : all) left_.push_back(std::move(old));
  }

 private:
  // The end of a tensor may run code of Python, which waits for Python's lock and may leave another
  // message: hold no lock.
  static void drop_ended(std::vector<std::unique_ptr<Pending>>& left) {
    for (auto& old : left) {
      int done = 0;
      (void)dl_test(&old->request, &done);
      if (done != 0) old.reset();
    }
    std::erase(left, nullptr);
  }

  dl_comm* const comm_;
  const std::shared_ptr<Comm> whole_;
  const std::shared_ptr<const void> needed_;
  std::atomic<std::uint64_t> lost_in_{0};  // the round; 0: none
  std::mutex left_mutex_;
  std::vector<std::unique_ptr<Pending>> left_;
  int under_way_ = 0;
  std::condition_variable idle_;
};

// The common part of both kinds: the communicator, and the hooks of their group, which identify
// each Work by its key.
class HookedWork : public c10d::Work {
 public:
  HookedWork(std::shared_ptr<Comm> comm, std::shared_ptr<const Hooks> hooks, c10d::OpType type)
      : Work(dl_rank(comm->get()), type), comm_(std::move(comm)), hooks_(std::move(hooks)) {}
  // Overrides a function of newer versions.
  std::uint64_t getCompletionKey() const { return key_; }

 protected:
  void tell_hooks(std::optional<float> milliseconds) { hooks_->done(key_, milliseconds); }

  const std::shared_ptr<Comm> comm_;

 private:
  const std::shared_ptr<const Hooks> hooks_;
  const std::uint64_t key_ = new_completion_key();
};

class CollectiveWork : public HookedWork {
 public:
  // after: remaining work when the data have come, such as sorting them into a list of tensors.
  // number: among the collectives of its group.
  CollectiveWork(std::shared_ptr<Comm> comm, std::shared_ptr<const Hooks> hooks, c10d::OpType type,
                 std::uint64_t number, Tensors outputs, Tensors used, std::function<void()> after)
      : HookedWork(std::move(comm), std::move(hooks), type),
        number_(number),
        outputs_(std::move(outputs)),
        used_(std::move(used)),
        after_(std::move(after)) {
    comm_->begin_work();
  }
  ~CollectiveWork() override { be_over(); }

  // Made on the first call: few callers need it.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::lock_guard lock(future_mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()), devices());
      if (ended_) settle(*future_, error_);
    }
    return future_;
  }
  std::vector<at::Tensor> result() override { return outputs_; }
  // These two override functions of newer versions.
  std::uint64_t getSequencenumber() const { return number_; }
  float getDuration() const { return milliseconds_; }
  // True already while the hooks run: a hook registered after that looks here.
  bool isCompleted() override { return done_ || Work::isCompleted(); }

  // Adds a part while the Work starts; the pointer is valid until the next part.
  dl_request** part() { return &requests_.emplace_back(nullptr); }

  // Blocks until the ranks have finished it.
  void await() { error_ = wait_parts(); }
  // Call it then; runs the callbacks of the future.
  void complete() {
    std::exception_ptr error = error_;
    try {
      if (!error && after_) after_();
      after_ = nullptr;
      used_.clear();
      settle_future(error);
    } catch (...) {
      error = std::current_exception();
    }
    milliseconds_ =
        std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - began_).count();
    end(error);
  }

  // It did not start, or only in part.
  void fail(const std::exception_ptr& error) {
    (void)wait_parts();
    end(error);
  }

 private:
  std::exception_ptr wait_parts() {
    std::exception_ptr error;
    for (auto& request : requests_) {
      const auto result = dl_wait(&request);
      if (result != DL_OK && !error) error = comm_->exception(result);
    }
    return error;
  }

  // Waiters go on after the hooks have run.
  void end(const std::exception_ptr& error) {
    if (error) {
      settle_future(error);
    } else {
      done_ = true;
      tell_hooks(milliseconds_);
    }
    finish(error);
    be_over();
  }

  void settle(c10::ivalue::Future& future, const std::exception_ptr& error) const {
    if (error) {
      future.setErrorIfNeeded(error);
    } else {
      future.markCompleted(at::IValue(outputs_));
    }
  }
  void settle_future(const std::exception_ptr& error) {
    std::unique_lock lock(future_mutex_);
    ended_ = true;
    error_ = error;
    const auto future = future_;
    lock.unlock();  // callbacks of the future run now
    if (future) settle(*future, error);
  }

  void be_over() {
    if (!over_.exchange(true)) comm_->end_work();
  }

  std::vector<c10::Device> devices() const {
    if (outputs_.empty() || outputs_[0].device().is_cpu()) return {};
    return {outputs_[0].device()};
  }

  const std::uint64_t number_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::atomic<float> milliseconds_{0};
  std::vector<dl_request*> requests_;
  const Tensors outputs_;
  Tensors used_;              // inputs, and memory in between
  std::exception_ptr error_;  // set at the end
  std::function<void()> after_;
  std::atomic<bool> done_{false};
  std::atomic<bool> over_{false};
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // null: not asked for
  bool ended_ = false;
};

// Makes libdlring's calls of one collective: each as a part of its Work, in the background, or on
// this thread if the caller waits for it anyway, which saves three changes of threads.
class Calls {
 public:
  Calls(Comm& comm, CollectiveWork& work, bool at_once)
      : comm_(comm.get()), work_(work), at_once_(at_once) {}

  // now: the blocking form; later: its background twin.
  template <class Now, class Later, class... Given>
  dl_result operator()(Now now, Later later, Given... given) const {
    return at_once_ ? now(comm_, given...) : later(comm_, given..., work_.part());
  }

 private:
  dl_comm* const comm_;
  CollectiveWork& work_;
  const bool at_once_;
};

class MessageWork : public HookedWork {
 public:
  MessageWork(std::shared_ptr<Comm> comm, std::shared_ptr<const Hooks> hooks, c10d::OpType type,
              at::Tensor tensor)
      : HookedWork(std::move(comm), std::move(hooks), type) {
    pending_->tensor = std::move(tensor);
  }
  ~MessageWork() override {
    if (pending_ && pending_->request != nullptr) comm_->leave(std::move(pending_));
  }

  Pending& pending() { return *pending_; }
  int sourceRank() const override { return source_; }
  bool isCompleted() override {
    const std::unique_lock lock(waiting_, std::try_to_lock);  // else another thread waits
    int done = 0;
    if (lock && pending_) {
      const auto result = dl_test(&pending_->request, &done);
      if (done != 0) end(result);
    }
    return Work::isCompleted();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    {
      const std::lock_guard lock(waiting_);
      if (pending_ && timeout > std::chrono::milliseconds::zero()) wait_until_over(timeout);
      if (pending_) end(dl_wait(&pending_->request));
    }
    return Work::wait(kNoTimeout);  // throws the failure
  }

 private:
  void wait_until_over(std::chrono::milliseconds timeout) {
    int done = 0;
    const std::chrono::duration<double> seconds = timeout;
    const auto result = dl_wait_for(&pending_->request, seconds.count(), &done);
    if (done != 0) return end(result);
    throw std::runtime_error("dlring: Timed out waiting " + std::to_string(timeout.count()) +
                             "ms for a message: it has not arrived yet");
  }

  void end(dl_result result) {
    source_ = pending_->source;
    if (result == DL_OK && pending_->result.defined()) {
      put_back(pending_->tensor, pending_->result);
    }
    const auto error = result == DL_OK ? nullptr : comm_->exception(result);
    finish(error);
    pending_.reset();
    if (!error) tell_hooks(std::nullopt);
  }

  std::mutex waiting_;
  std::unique_ptr<Pending> pending_ = std::make_unique<Pending>();
  int source_ = -1;
};

// Completes a group's collectives, in order, on a thread of its own. Users' callbacks of a future
// run there, too, and may start collectives and wait for them: then another thread takes over the
// queue, and this one ends after its present callback.
class Completer {
 public:
  using Item = c10::intrusive_ptr<CollectiveWork>;

  Completer() {
    const WithoutGil others_run;
    std::unique_lock lock(state_->mutex);
    State::start(state_);
    state_->changed.wait(lock, [this] { return state_->ready; });  // waiting threads do not fork
  }
  ~Completer() { close()(); }
  // Returns a function that waits until the threads have ended, except its caller's own. Running
  // collectives must end by themselves. In a forked child there is no such thread.
  std::function<void()> close() {
    if (state_->process != ::getpid()) return [] {};
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
    return [state = state_] { state->await_end(); };
  }
  bool closed() const { return state_->closed; }
  void push(Item item) {
    const std::lock_guard lock(state_->mutex);
    state_->queue.push_back(std::move(item));
    ++state_->under_way;
    others_serve();
    state_->changed.notify_all();
  }
  // Whether the ranks have finished all collectives. In a forked child: those of before the fork.
  bool idle() const { return state_->under_way == 0; }
  // Waits until idle().
  void await_idle() {
    if (state_->process != ::getpid()) return;
    std::unique_lock lock(state_->mutex);
    others_serve();
    state_->idle.wait(lock, [this] { return idle(); });
  }

 private:
  // Call it under the mutex, if the caller may be a callback of a future.
  void others_serve() {
    if (state_->serves == std::this_thread::get_id()) State::start(state_);
  }

  struct State {
    const pid_t process = ::getpid();
    std::mutex mutex;
    std::condition_variable changed;
    std::condition_variable idle;
    std::deque<Item> queue;
    std::atomic<std::size_t> under_way{0};
    int threads = 0;
    bool ready = false;      // the first has its place in Python
    std::thread::id serves;  // the thread that serves the queue
    std::atomic<bool> closed{false};

    void await_end() {
      const WithoutGil others_run;
      std::unique_lock lock(mutex);
      const int own = serves == std::this_thread::get_id() ? 1 : 0;
      changed.wait(lock, [&] { return threads == own; });
    }

    // Call it under the mutex.
    static void start(const std::shared_ptr<State>& state) {
      ++state->threads;
      std::thread thread([state] { state->serve(); });
      state->serves = thread.get_id();
      thread.detach();
    }

    void serve() {
      const Leaving leaving{*this};
      PythonThread registered;
      registered.enter();
      serve_queue();
      registered.leave();
    }

    void serve_queue() {
      std::unique_lock lock(mutex);
      ready = true;
      changed.notify_all();
      const auto ours = [this] { return serves == std::this_thread::get_id(); };
      while (true) {
        changed.wait(lock, [&] { return !ours() || closed || !queue.empty(); });
        if (!ours() || queue.empty()) return;
        Item item = std::move(queue.front());
        queue.pop_front();
        lock.unlock();
        item->await();
        lock.lock();
        if (--under_way == 0) idle.notify_all();
        lock.unlock();
        item->complete();
        item.reset();  // may be the last reference: frees tensors
        lock.lock();
      }
    }
  };
  // Works even if Python, about to end, ends the thread that asks for its lock.
  struct Leaving {
    State& state;
    ~Leaving() {
      const std::lock_guard lock(state.mutex);
      --state.threads;
      state.changed.notify_all();
    }
  };

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace dlring_torch
