// The common part of c10d's groups here: the communicator of a group, how operations begin, the
// order in which they end, and how the group leaves.
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
#include "ring/torch/torch_bootstrap.h"
#include "ring/torch/torch_tensors.h"
#include "ring/torch/torch_work.h"

namespace dlring_torch {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// -- CUDA: an operation follows the present work of the tensor's current stream.

#if DLRING_TORCH_FROM(2, 4)
inline c10::Stream stream_of(const at::Tensor& tensor) {
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}
inline void follow_stream(Comm& comm, const at::Tensor& tensor) {
  if (!tensor.device().is_cuda()) return;
  comm.check(dl_set_stream(comm.get(), stream_of(tensor).native_handle()));
}
// Waits for what this thread has put into its stream.
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

// The arguments of a group, for the communicators that it makes later.
struct GroupOrigin {
  c10::intrusive_ptr<c10d::Store> store;
  double limit_s = -1;    // for each operation; <0: libdlring's
  bool is_world = false;  // has all ranks: other groups are made from it
};

// A group's communicator, and the round that the group is for.
struct Membership {
  explicit Membership(std::shared_ptr<Comm> given) : comm(std::move(given)), round(comm->round()) {}
  const std::shared_ptr<Comm> comm;
  const std::uint64_t round;
};

class GroupBase : public Base {
 public:
  explicit GroupBase(std::shared_ptr<Comm> comm, GroupOrigin origin = {})
      : Base(dl_rank(comm->get()), dl_size(comm->get())),
        origin_(std::move(origin)),
        member_(std::make_shared<const Membership>(std::move(comm))) {
    const std::lock_guard lock(all_mutex);
    all.insert(this);
  }
  // Without a communicator yet; until then with this rank and size.
  GroupBase(int rank, int size, GroupOrigin origin)
      : Base(rank, size),
        origin_(std::move(origin)),
        why_none_("it was made with enable_reconfigure=True: call reconfigure() first") {
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
  // Overrides a function of newer versions: torch.distributed.set_timeout(), for later operations.
  void setTimeout(std::chrono::milliseconds limit) { limit_s_ = limit_or_least(limit); }
#if DLRING_TORCH_FROM(2, 15)
  // See torch_hooks.h. A message is found to be done only when a caller asks.
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
    hooks_->completion.add(id, std::move(hook));
  }
  void unregisterCompletionHook(std::int64_t id) override { hooks_->completion.remove(id); }
#endif
  // Call it before Python ends: a thread that would free a tensor after that would end the process.
  static void close_all() {
    std::vector<std::function<void()>> ends;
    {
      const std::lock_guard lock(all_mutex);
      for (GroupBase* const group : all) ends.push_back(group->close());
    }
    for (const auto& await_end : ends) await_end();
  }

 protected:
  // A collective, and the caller's time limit for it; 0 or less: the group's.
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
    const auto at = member();
    const std::lock_guard order(at->comm->collectives);
    std::unique_lock lock(at->comm->starting);
    check_round(*at);
    auto work =
        c10::make_intrusive<CollectiveWork>(at->comm, hooks_, kind.type, ++number_,
                                            std::move(outputs), std::move(used), std::move(after));
    if (runs_at_once(kind, first)) {
      lock.unlock();
      run(*at->comm, *work, begin);
      return work;
    }
    if (first.defined()) follow_stream(*at->comm, first);
    const Limit limit(*this, *at->comm, kind.limit);
    check(*at->comm, begin(Calls(*at->comm, *work, false)), *work);
    completer_.push(work);
    return work;
  }

  template <class Begin>
  WorkPtr message(c10d::OpType type, const at::Tensor& tensor, const at::Tensor& result, int peer,
                  Begin begin) {
    const auto at = member();
    auto work = c10::make_intrusive<MessageWork>(at->comm, hooks_, type, tensor);
    work->pending().result = result;
    work->pending().source = peer;
    const std::lock_guard lock(at->comm->starting);
    check_round(*at);
    follow_stream(*at->comm, tensor);
    const Limit limit(*this, *at->comm);
    at->comm->check(begin(at->comm->get(), work->pending()));
    return work;
  }

  // Anything that blocks before an operation can begin.
  template <class Do>
  void before_start(Do what, std::chrono::milliseconds given = {}) {
    const auto at = member();
    const std::scoped_lock lock(at->comm->collectives, at->comm->starting);
    check_round(*at);
    const Limit limit(*this, *at->comm, given);
    what();
  }

  // Another object may still use the group, such as a DistributedDataParallel of an earlier round.
  void check_round(const Membership& at) const {
    if (completer_.closed()) throw std::runtime_error("dlring: this process is about to end");
    if (at.comm->round() == at.round) return;
    throw std::runtime_error("dlring: this group is of round " + std::to_string(at.round) +
                             ", and the job is in round " + std::to_string(at.comm->round()) +
                             ": make a new group, and new objects that use it, in each round");
  }

  // Null: the group is on no communicator.
  std::shared_ptr<const Membership> present() const {
    const std::lock_guard lock(member_mutex_);
    return member_;
  }
  std::shared_ptr<Comm> comm() const { return member()->comm; }
  const GroupOrigin& origin() const { return origin_; }

  // Gives up its communicator: pending operations end with an error before this returns. why: the
  // reason for having no communicator until enter().
  void leave(const std::string& why) {
    std::shared_ptr<const Membership> left;
    {
      const std::lock_guard lock(member_mutex_);
      left = std::move(member_);
      member_.reset();
      why_none_ = why;
    }
    if (origin_.is_world) world.set(nullptr);
    if (!left) return;
    dl_abort(left->comm->get());
    completer_.await_idle();
    const std::lock_guard over(left->comm->collectives);  // of a collective on its caller's thread
  }
  void enter(std::shared_ptr<Comm> comm) {
    if (origin_.is_world) world.set(comm);
    number_ = 0;
    const std::lock_guard lock(member_mutex_);
    member_ = std::make_shared<const Membership>(std::move(comm));
  }

  static double limit_or_least(std::chrono::milliseconds limit) {
    return std::max(std::chrono::duration<double>(limit).count(), 0.001);
  }
  // The limit of setTimeout(), else the group's initial one.
  double default_limit() const {
    const double set = limit_s_;
    return set < 0 ? origin_.limit_s : set;
  }
  // The number of collectives that have begun, the same on all ranks.
  std::uint64_t number() const { return number_; }

  // Copies from one buffer to the parts that the user wants.
  static std::function<void()> spread(const at::Tensor& flat, const Tensors& parts) {
    if (!flat.defined()) return nullptr;
    return [flat, parts] {
      copy_flat(flat, parts, false);
      finish_copies(flat);
    };
  }

  // Copies what lies in other memory for libdlring back to the user's tensors.
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
  // The limit for operations that begin while this exists; under the lock `starting`.
  class Limit {
   public:
    Limit(const GroupBase& group, Comm& comm, std::chrono::milliseconds given = {}) : comm_(comm) {
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

  // Whether it runs on the calling thread. Not if it would overtake another collective, nor with a
  // time limit of its own, because messages that begin meanwhile would get that limit, too.
  bool runs_at_once(const Kind& kind, const at::Tensor& first) {
    return kind.blocks && kind.limit.count() <= 0 && limit_s_ < 0 && completer_.idle() &&
           (!first.defined() || first.device().is_cpu());
  }
  template <class Begin>
  void run(Comm& comm, CollectiveWork& work, Begin begin) {
    const WithoutGil others_run;
    runs_ = true;
    const auto done = begin(Calls(comm, work, true));
    runs_ = false;
    check(comm, done, work);
    work.complete();
  }
  static void check(Comm& comm, dl_result begun, CollectiveWork& work) {
    if (begun == DL_OK) return;
    const auto error = comm.exception(begun);
    work.fail(error);
    std::rethrow_exception(error);
  }

  // As in libdlring: leaving with pending operations is an abort.
  std::function<void()> close() {
    const auto at = present();
    const bool under_way = !completer_.idle() || runs_;
    if (at && under_way && at->comm->round() == at->round) dl_abort(at->comm->get());
    return completer_.close();
  }

  std::shared_ptr<const Membership> member() const {
    const std::lock_guard lock(member_mutex_);
    if (member_) return member_;
    throw std::runtime_error("dlring: this group has no communicator: " + why_none_);
  }

  const GroupOrigin origin_;
  mutable std::mutex member_mutex_;
  std::shared_ptr<const Membership> member_;  // null: none
  std::string why_none_;
  const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  std::atomic<std::uint64_t> number_{0};
  std::atomic<bool> runs_{false};    // a collective, on its caller's thread
  std::atomic<double> limit_s_{-1};  // of setTimeout(); <0: the communicator's
  Completer completer_;              // ends before the group lets go of its communicator

  static inline std::mutex all_mutex;
  static inline std::set<GroupBase*> all;
};

}  // namespace dlring_torch
