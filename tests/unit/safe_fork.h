// fork() in a process with threads, whose child continues without exec().
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/unit/process_state.h"

namespace dlaunch {

// Every other thread of this process sleeps.
inline bool others_sleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::gettid())) continue;
    if (state_in(task.path()) != 'S') return false;
  }
  return true;
}

// What another thread holds of a sanitizer's allocator at a fork stays held in the child, which
// then waits for ever: those of gcc 12 do not take it before they fork. One that sleeps has none.
inline pid_t safe_fork() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  for (int ms = 0; ms < 10'000 && !others_sleep(); ++ms) ::usleep(1000);
#endif
  return ::fork();
}

}  // namespace dlaunch
