// What c10d registers with a group, from PyTorch 2.15 on: who is told that an operation is done, as
// the Flight Recorder, whose entries become "completed" by it. Abort hooks there are none, as in
// Gloo: that of the recorder may take 15 s, and the loss of a peer is to be told at once.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ring/torch/torch_tensors.h"
#if DLRING_TORCH_FROM(2, 15)
#include <torch/csrc/distributed/c10d/Hooks.hpp>
#endif

namespace dlring_torch {

// By their ids. A hook that is removed may be running, or about to, on another thread: those of
// PyTorch see to that. None is called under a lock of this class.
template <class Hook>
class HookTable {
 public:
  void add(std::int64_t id, Hook hook) {
    change([&](Table& hooks) { hooks[id] = std::move(hook); });
  }
  void remove(std::int64_t id) {
    change([id](Table& hooks) { hooks.erase(id); });
  }
  template <class... Given>
  void call(const Given&... given) const {
    const auto hooks = present();
    for (const auto& entry : *hooks) {
      try {
        entry.second(given...);
      } catch (const std::exception& error) {  // the operation has ended as it has
        TORCH_WARN("dlring: a hook of this group failed: ", error.what());
      }
    }
  }

 private:
  using Table = std::map<std::int64_t, Hook>;

  template <class Change>
  void change(Change of) {
    const std::lock_guard lock(mutex_);
    auto hooks = std::make_shared<Table>(*hooks_);
    of(*hooks);
    hooks_ = std::move(hooks);
  }
  std::shared_ptr<const Table> present() const {
    const std::lock_guard lock(mutex_);
    return hooks_;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const Table> hooks_ = std::make_shared<Table>();  // never changed: replaced
};

// Of a group, and of each Work of it that is still there.
struct Hooks {
#if DLRING_TORCH_FROM(2, 15)
  HookTable<c10d::CompletionHook> completion;

  void done(std::uint64_t key, std::optional<float> milliseconds) const {
    completion.call(c10d::CompletionHookArgs{key, milliseconds});
  }
#else
  void done(std::uint64_t, std::optional<float>) const {}
#endif
};

// Of one Work of this process: no other ever has the same.
inline std::uint64_t new_completion_key() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace dlring_torch
