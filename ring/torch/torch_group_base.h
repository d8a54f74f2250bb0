// What each group of c10d's is here: how an operation begins, in which order they end, and how it
// is left.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include <atomic>
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
  template <class Begin>
  WorkPtr start(c10d::OpType type, Tensors outputs, Tensors used, Begin begin,
                std::function<void()> after = nullptr) {
    const at::Tensor first = !used.empty() ? used[0] : outputs.empty() ? at::Tensor() : outputs[0];
    const std::lock_guard lock(comm_->starting);
    check_round();
    auto work = c10::make_intrusive<CollectiveWork>(comm_, type, ++number_, std::move(outputs),
                                                    std::move(used), std::move(after));
    if (first.defined()) follow_stream(*comm_, first);
    const auto begun = begin(comm_->get(), *work);
    if (begun != DL_OK) {
      const auto error = comm_->exception(begun);
      work->fail(error);
      std::rethrow_exception(error);
    }
    completer_.push(work);
    return work;
  }

  template <class Begin>
  WorkPtr message(c10d::OpType type, const at::Tensor& tensor, const at::Tensor& result, int peer,
                  Begin begin) {
    auto work = c10::make_intrusive<MessageWork>(comm_, type, tensor);
    work->pending().result = result;
    work->pending().source = peer;
    const std::lock_guard lock(comm_->starting);
    check_round();
    follow_stream(*comm_, tensor);
    comm_->check(begin(comm_->get(), work->pending()));
    return work;
  }

  // What blocks before an operation can begin.
  template <class Do>
  void before_start(Do what) {
    const std::lock_guard lock(comm_->starting);
    check_round();
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
  // As in libdlring: leaving with something under way is an abort.
  std::function<void()> close() {
    if (!completer_.idle() && comm_->round() == round_) dl_abort(comm_->get());
    return completer_.close();
  }

  const std::shared_ptr<Comm> comm_;
  const std::uint64_t round_ = comm_->round();
  std::atomic<std::uint64_t> number_{0};
  Completer completer_;  // ends before the group lets go of the communicator

  static inline std::mutex all_mutex;
  static inline std::set<GroupBase*> all;
};

}  // namespace dlring_torch
