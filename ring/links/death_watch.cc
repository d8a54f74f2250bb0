#include "ring/links/death_watch.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include <climits>

#include "base/quiet_thread.h"
#include "base/short_turns.h"

namespace dlaunch {
namespace {

#ifdef SYS_futex_waitv

constexpr std::size_t kMostWords = FUTEX_WAITV_MAX;
constexpr std::uint32_t kLeft = FUTEX_WAITERS;  // free, and not of a dead owner

// Waits until one of the words differs from its value here, or until a wake.
long wait_for_any(futex_waitv* words, std::size_t count) {
  return ::syscall(SYS_futex_waitv, words, count, 0, nullptr, 0);
}

bool kernel_has_it() { return wait_for_any(nullptr, 0) != 0 && errno == EINVAL; }

void wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void set(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  word = value;
  wake_all(word);
}

// The calling thread's only lock, in the kernel's format: a list of one entry, and the word at a
// fixed distance from it.
class HeldUntilDeath {
 public:
  explicit HeldUntilDeath(std::atomic<std::uint32_t>& word) : word_(word) {
    head_.list.next = &entry_;
    entry_.next = &head_.list;
    head_.futex_offset = reinterpret_cast<char*>(&word) - reinterpret_cast<char*>(&entry_);
    ::syscall(SYS_set_robust_list, &head_, sizeof head_);
    set(word_, static_cast<std::uint32_t>(::syscall(SYS_gettid)) | FUTEX_WAITERS);
  }
  ~HeldUntilDeath() {
    // The kernel ignores a lock that is not this thread's.
    set(word_, kLeft);
    ::syscall(SYS_set_robust_list, nullptr, sizeof head_);
  }
  HeldUntilDeath(const HeldUntilDeath&) = delete;
  HeldUntilDeath& operator=(const HeldUntilDeath&) = delete;

 private:
  std::atomic<std::uint32_t>& word_;
  robust_list_head head_{};
  robust_list entry_{};
};

#endif

}  // namespace

DeathWatch::DeathWatch(int own, Lives lives, std::function<void(int)> died)
    : own_(static_cast<std::size_t>(own)),
      lives_(std::move(lives)),
      died_(std::move(died)),
      over_(lives_.words.size(), false) {}

#ifdef SYS_futex_waitv

std::unique_ptr<DeathWatch> DeathWatch::start(int own, Lives lives, std::function<void(int)> died) {
  if (lives.words.size() > kMostWords || !kernel_has_it()) return nullptr;
  std::unique_ptr<DeathWatch> watch(new DeathWatch(own, std::move(lives), std::move(died)));
  auto thread = start_quiet_thread([self = watch.get()] { self->watch(); });
  if (!thread) return nullptr;
  watch->thread_ = std::move(*thread);
  return watch;
}

DeathWatch::~DeathWatch() {
  if (!thread_.joinable()) return;
  set(stop_, 1);
  thread_.join();
}

void DeathWatch::watch() {
  ask_for_short_turns();
  const HeldUntilDeath held(*lives_.words[own_]);
  while (stop_ == 0) look_and_sleep();
}

// The kernel wakes one waiter of a dead rank's lock; that one wakes the others. A thread that is
// awake then finds that the value has changed.
void DeathWatch::look_and_sleep() {
  futex_waitv words[kMostWords];
  std::size_t count = 0;
  const auto await = [&](const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
    words[count++] = {.val = seen,
                      .uaddr = reinterpret_cast<std::uintptr_t>(&word),
                      .flags = FUTEX_32,
                      .__reserved = 0};
  };
  await(stop_, 0);
  for (std::size_t i = 0; i < lives_.words.size(); ++i) {
    if (i == own_ || over_[i]) continue;
    std::atomic<std::uint32_t>& word = *lives_.words[i];
    const std::uint32_t seen = word;
    const bool dead = (seen & FUTEX_OWNER_DIED) != 0;
    over_[i] = dead || seen == kLeft;
    if (!over_[i]) await(word, seen);
    if (!dead) continue;
    wake_all(word);
    died_(static_cast<int>(i));
  }
  wait_for_any(words, count);
}

#else

std::unique_ptr<DeathWatch> DeathWatch::start(int, Lives, std::function<void(int)>) {
  return nullptr;
}
DeathWatch::~DeathWatch() = default;

#endif

}  // namespace dlaunch
