// A thread of the library. It blocks all signals, because they are for the program's own threads.
// If the system has no thread to give, the result is an Error.
#pragma once

#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"

namespace dlaunch {

// `body` must not throw.
template <class Body>
Result<std::thread> start_quiet_thread(Body body) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  Result<std::thread> started = Error{.code = Errc::io, .what = "start a thread"};
  try {
    started = std::thread(std::move(body));
  } catch (const std::system_error& e) {
    started = errno_error("start a thread", e.code().value());
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return started;
}

}  // namespace dlaunch
