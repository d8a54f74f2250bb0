// What each group of c10d's is here: how an operation begins, in which order they end, and how it
// is left.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include "ring/torch/torch_tensors.h"
#include "ring/torch/torch_work.h"

namespace dlring_torch {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// -- CUDA: what was in the tensor's current stream comes first.

#if DLRING_TORCH_FROM(2, 4)
inline c10::Stream stream_of(const at::Tensor& tensor) {
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}
inline void follow_stream(Comm& comm, const at::Tensor& tensor) {
  if (!tensor.device().is_cuda()) return;
  comm.check(dl_set_stream(comm.get(), stream_of(tensor).native_handle()));
}
// What this thread has put into its stream is done.
inline void finish_copies(const at::Tensor& tensor) {
  if (tensor.device().is_cuda()) stream_of(tensor).synchronize();
}
#else
inline void follow_stream(Comm&, const at::Tensor& tensor) {
  if (!tensor.device().is_cuda()) return;
  throw std::runtime_error("dlring: tensors on a GPU need PyTorch 2.4 or newer");
}
inline void finish_copies(const at::Tensor&) {}
#endif

class GroupBase : public Base {
 public:
  explicit GroupBase(std::shared_ptr<Comm> comm)
      : Base(dl_rank(comm->get()), dl_size(comm->get())), comm_(std::move(comm)) {
    const std::lock_guard lock(all_mutex);
    all.insert(this);
  }
  ~GroupBase() override {
    const WithoutGil others_run;
    {
      const std::lock_guard lock(all_mutex);
      all.erase(this);
    }
    close()();
  }
  // Overrides one of newer versions: torch.distributed.set_timeout(), for what begins after it.
  void setTimeout(std::chrono::milliseconds limit) {
    limit_s_ = std::max(std::chrono::duration<double>(limit).count(), 0.001);
  }
#if DLRING_TORCH_FROM(2, 15)
  // See torch_hooks.h. A message is known to be done when somebody asks for it.
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    hooks_->completion.add(id, std::move(hook));
  }
  void unregisterCompletionHook(std::int64_t id) override { hooks_->completion.remove(id); }
#endif
  // Before Python ends: a thread that would free a tensor after that would end the process.
  static void close_all() {
    std::vector<std::function<void()>> ends;
    {
      const std::lock_guard lock(all_mutex);
      for (GroupBase* const group : all) ends.push_back(group->close());
    }
    for (const auto& await_end : ends) await_end();
  }

 protected:
  // A collective, and the caller's time limit for it; not above 0: the group's.
  struct Kind {
    c10d::OpType type;
    std::chrono::milliseconds limit;
    bool blocks = false;  // the caller waits for it at once
  };
  template <class Options>
  static Kind kind_of(c10d::OpType type, const Options& options) {
    Kind kind{type, options.timeout};
    if constexpr (requires { options.asyncOp; }) kind.blocks = !options.asyncOp;
    return kind;
  }

  // begin(calls) makes its calls.
  template <class Begin>
  WorkPtr start(const Kind& kind, Tensors outputs, Tensors used, Begin begin,
                std::function<void()> after = nullptr) {
    const at::Tensor first = !used.empty() ? used[0] : outputs.empty() ? at::Tensor() : outputs[0];
    const std::lock_guard order(comm_->collectives);
    std::unique_lock lock(comm_->starting);
    check_round();
    auto work = c10::make_intrusive<CollectiveWork>(
        comm_, hooks_, kind.type, ++number_, std::move(outputs), std::move(used), std::move(after));
    if (runs_at_once(kind, first)) {
      lock.unlock();
      run(*work, begin);
      return work;
    }
    if (first.defined()) follow_stream(*comm_, first);
    const Limit limit(*this, kind.limit);
    check(begin(Calls(*comm_, *work, false)), *work);
    completer_.push(work);
    return work;
  }

  template <class Begin>
  WorkPtr message(c10d::OpType type, const at::Tensor& tensor, const at::Tensor& result, int peer,
                  Begin begin) {
    auto work = c10::make_intrusive<MessageWork>(comm_, hooks_, type, tensor);
    work->pending().result = result;
    work->pending().source = peer;
    const std::lock_guard lock(comm_->starting);
    check_round();
    follow_stream(*comm_, tensor);
    const Limit limit(*this);
    comm_->check(begin(comm_->get(), work->pending()));
    return work;
  }

  // What blocks before an operation can begin.
  template <class Do>
  void before_start(Do what, std::chrono::milliseconds given = {}) {
    const std::scoped_lock lock(comm_->collectives, comm_->starting);
    check_round();
    const Limit limit(*this, given);
    what();
  }

  // A group that something still knows, as a DistributedDataParallel of an earlier round.
  void check_round() const {
    if (completer_.closed()) throw std::runtime_error("dlring: this process is about to end");
    if (comm_->round() == round_) return;
    throw std::runtime_error("dlring: this group is of round " + std::to_string(round_) +
                             ", and the job is in round " + std::to_string(comm_->round()) +
                             ": make what uses it anew in each round");
  }

  const std::shared_ptr<Comm>& comm() const { return comm_; }
  // Of collectives that have begun, on all ranks alike.
  std::uint64_t number() const { return number_; }

  // From one buffer to where the user wants the parts.
  static std::function<void()> spread(const at::Tensor& flat, const Tensors& parts) {
    if (!flat.defined()) return nullptr;
    return [flat, parts] {
      copy_flat(flat, parts, false);
      finish_copies(flat);
    };
  }

  // What lies in other memory for libdlring, to where the user wants it.
  static std::function<void()> put_all_back(const Tensors& packed, const Tensors& tensors) {
    bool all_there = true;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      all_there = all_there && is_there(packed[i], tensors[i]);
    }
    if (all_there) return nullptr;
    return [packed, tensors] {
      for (std::size_t i = 0; i < tensors.size(); ++i) put_back(packed[i], tensors[i]);
      finish_copies(tensors[0]);
    };
  }

 private:
  // Of what begins as long as this exists; under the lock `starting`.
  class Limit {
   public:
    explicit Limit(const GroupBase& group, std::chrono::milliseconds given = {})
        : comm_(*group.comm_) {
      const std::chrono::duration<double> own = given;
      const double limit_s = own.count() > 0 ? own.count() : group.limit_s_.load();
      if (limit_s < 0) return;
      comm_.check(dl_set_op_timeout(comm_.get(), limit_s));
      changed_ = true;
    }
    ~Limit() {
      if (changed_) (void)dl_set_op_timeout(comm_.get(), -1);
    }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;

   private:
    Comm& comm_;
    bool changed_ = false;
  };

  // On the calling thread. Not where it would overtake another collective, nor with a time limit
  // of its own, which messages that begin meanwhile would get, too.
  bool runs_at_once(const Kind& kind, const at::Tensor& first) {
    return kind.blocks && kind.limit.count() <= 0 && limit_s_ < 0 && completer_.idle() &&
           (!first.defined() || first.device().is_cpu());
  }
  template <class Begin>
  void run(CollectiveWork& work, Begin begin) {
    const WithoutGil others_run;
    runs_ = true;
    const auto done = begin(Calls(*comm_, work, true));
    runs_ = false;
    check(done, work);
    work.complete();
  }
  void check(dl_result begun, CollectiveWork& work) {
    if (begun == DL_OK) return;
    const auto error = comm_->exception(begun);
    work.fail(error);
    std::rethrow_exception(error);
  }

  // As in libdlring: leaving with something under way is an abort.
  std::function<void()> close() {
    if ((!completer_.idle() || runs_) && comm_->round() == round_) dl_abort(comm_->get());
    return completer_.close();
  }

  const std::shared_ptr<Comm> comm_;
  const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  const std::uint64_t round_ = comm_->round();
  std::atomic<std::uint64_t> number_{0};
  std::atomic<bool> runs_{false};    // a collective, on its caller's thread
  std::atomic<double> limit_s_{-1};  // of setTimeout(); <0: that of the communicator
  Completer completer_;              // ends before the group lets go of the communicator

  static inline std::mutex all_mutex;
  static inline std::set<GroupBase*> all;
};

}  // namespace dlring_torch
