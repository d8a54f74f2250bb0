// Pump handles events one after another, in the order of their arrival. It handles the consequences
// of an event after that event, so no core is entered again while it works. One thread.
#pragma once

#include <deque>
#include <functional>
#include <utility>

namespace dlaunch {

class Pump {
 public:
  using Event = std::function<void()>;
  // Calls `idle` each time when all are handled.
  explicit Pump(std::function<void()> idle = [] {}) : idle_(std::move(idle)) {}

  // Handles it at once or, if another event is being handled, after those posted before.
  void post(Event event) {
    events_.push_back(std::move(event));
    if (std::exchange(busy_, true)) return;
    while (!events_.empty()) {
      const Event next = std::move(events_.front());
      events_.pop_front();
      next();
    }
    busy_ = false;
    idle_();
  }

 private:
  std::function<void()> idle_;
  std::deque<Event> events_;
  bool busy_ = false;
};

}  // namespace dlaunch
