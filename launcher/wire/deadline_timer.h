// DeadlineTimer: calls a function at a time, such as a core's deadline(). One thread, the loop's.
#pragma once

#include <functional>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"

namespace dlaunch {

class DeadlineTimer {
 public:
  DeadlineTimer(asio::io_context& loop, std::function<void()> on_due)
      : on_due_(std::move(on_due)), timer_(loop) {}

  // Replaces the deadline before. Idempotent. kNever: none. A deadline that moves to a later time
  // may still come early once: cores look at the clock themselves, and other users arm it when it
  // is not armed, or bear it.
  void arm(TimePoint due) {
    if (std::exchange(armed_, due) == due) return;
    if (due == kNever) return static_cast<void>(timer_.cancel());
    timer_.expires_at(due);
    timer_.async_wait([this](asio::error_code error) {
      if (error) return;
      armed_ = kNever;
      on_due_();
    });
  }
  bool is_armed() const { return armed_ != kNever; }

 private:
  const std::function<void()> on_due_;
  TimePoint armed_ = kNever;
  asio::steady_timer timer_;
};

}  // namespace dlaunch
