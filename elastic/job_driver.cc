#include "elastic/job_driver.h"

#include <tuple>
#include <utility>

namespace dlaunch {

// NOLINTNEXTLINE(performance-unnecessary-value-param): shells that write it down keep `then`
void JobDriver::Effects::write_down(const JobRecord&, std::function<void()> then) { then(); }

JobDriver::JobDriver(const JobConfig& config, Pump& pump, Effects& effects)
    : core_(config), pump_(pump), effects_(effects) {}

void JobDriver::feed(const JobCore::Event& event) {
  pump_.post([this, event] {
    auto actions = effects_.decide(core_, event);
    if (effects_.writes_down()) write_news();
    if (!actions.empty()) held_.push_back({asked_, std::move(actions)});
    release();
  });
}

// News for the record: a new number, a round that may now begin its work, hosts for a later round,
// a task that is done, or an accusation. No action waits until less time left is written.
void JobDriver::write_news() {
  if (core_.state() != JobState::forming && core_.state() != JobState::active) return;
  JobRecord record = core_.record();
  const auto news = [](const JobRecord& r) {
    return std::tuple(r.round, r.live, r.wished_size, r.done, r.accused);
  };
  const bool must = news(record) != news(last_);
  if (!must && record.time_left / kWritesTimeLeft == last_.time_left / kWritesTimeLeft) return;
  last_ = std::move(record);
  if (!must) return effects_.write_down(last_, [] {});
  effects_.write_down(last_, [this, number = ++asked_] {
    pump_.post([this, number] {
      written_ = number;
      release();
    });
  });
}

// A wish may be void once the record is written, because its node was lost meanwhile. The process
// may even be wanted again, by a later wish of the same round.
void JobDriver::perform(const JobCore::StartWorkers& start) {
  JobCore::StartWorkers still = start;
  std::erase_if(still.places,
                [&](const auto& place) { return !core_.awaits(place.slot, start.number); });
  if (!still.places.empty()) effects_.perform(still);
}

void JobDriver::release() {
  while (!held_.empty() && held_.front().record <= written_) {
    const auto actions = std::move(held_.front().actions);
    held_.pop_front();
    for (const auto& action : actions) {
      std::visit([this](const auto& what) { perform(what); }, action);
    }
  }
}

}  // namespace dlaunch
