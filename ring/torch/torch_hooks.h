// Hooks that c10d registers with a group, from PyTorch 2.15 on: they learn that an operation is
// done. The Flight Recorder is one; they mark its entries "completed". There are no abort hooks, as
// in Gloo: the recorder's may take 15 s, and the loss of a peer must be reported at once.
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

// Hooks by their ids. A removed hook may be running, or about to, on another thread: those of
// PyTorch handle that. No hook runs under a lock of this class.
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
      } catch (const std::exception& error) {  // the hook does not change the operation's outcome
        TORCH_WARN("dlring: a hook of this group failed: ", error.what());
      }
    }
  }

 private:
  using Table = std::map<std::int64_t, Hook>;

  template <class Change>
  void change(Change of) {
    std::shared_ptr<const Table> old;  // a hook ends without the lock
    const std::lock_guard lock(mutex_);
    auto hooks = std::make_shared<Table>(*hooks_);
    of(*hooks);
    old = std::exchange(hooks_, std::move(hooks));
  }
  std::shared_ptr<const Table> present() const {
    const std::lock_guard lock(mutex_);
    return hooks_;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const Table> hooks_ = std::make_shared<Table>();  // never changed, only replaced
};

// Shared by a group and each existing Work of it.
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

// A key for one Work of this process; never reused.
inline std::uint64_t new_completion_key() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace dlring_torch
