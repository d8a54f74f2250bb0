#include "elastic/host_health.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"
#include "elastic/host_starts.h"

namespace dlaunch {

std::vector<HostHealth::Action> HostHealth::step(TimePoint now, const Event& event) {
  actions_.clear();
  now_ = now;
  std::visit([this](const auto& what) { on(what); }, event);
  test_due();
  return std::move(actions_);
}

TimePoint HostHealth::due(const Guest& guest) const {
  const auto failure = failures_.find(guest.host);
  return failure == failures_.end() ? now_ : failure->second.next;
}

std::optional<TimePoint> HostHealth::deadline() const {
  TimePoint next = kNever;
  for (const auto& [link, guest] : guests_) {
    if (!guest.tests) next = std::min(next, due(guest));
  }
  return next == kNever ? std::nullopt : std::optional(next);
}

void HostHealth::test_due() {
  for (auto& [link, guest] : guests_) {
    if (guest.tests || due(guest) > now_) continue;
    guest.tests = true;
    actions_.push_back(Test{link});
  }
}

// Idempotent on one connection.
void HostHealth::on(const Comes& comes) { guests_.try_emplace(comes.link, Guest{comes.host}); }

void HostHealth::on(const Gone& gone) { guests_.erase(gone.link); }

void HostHealth::on(const Tested& tested) {
  const auto guest = guests_.find(tested.link);
  if (guest == guests_.end() || !std::exchange(guest->second.tests, false)) return;
  const std::string host = guest->second.host;
  if (tested.why.empty()) {
    failures_.erase(host);
    guests_.erase(guest);
    return actions_.push_back(Admit{tested.link});
  }
  Failure& failure = failures_[host];
  const Duration pause = jittered(HostStarts::pause_after(++failure.in_a_row), random_());
  failure.next = deadline_after(now_, pause);
  if (std::exchange(failure.why, tested.why) == tested.why) return;
  actions_.push_back(
      Tell{fmt::format("host {} failed its health check and gets no workers: {}; "
                       "dlaunch tests it again in {}, later less and less often",
                       host, tested.why, format_duration(pause))});
}

std::vector<std::string> HostHealth::words(TimePoint now) const {
  std::vector<std::string> lines;
  for (const auto& [link, guest] : guests_) {
    const auto failure = failures_.find(guest.host);
    std::string what = guest.tests ? "being tested" : "to be tested";
    if (failure != failures_.end()) {
      const Duration pause = std::max(failure->second.next - now, Duration::zero());
      what = fmt::format(
          "not healthy, {}: {}",
          guest.tests ? "being tested again" : "tested again in " + format_duration(pause),
          failure->second.why);
    }
    lines.push_back(guest.host + ": " + what);
  }
  return lines;
}

}  // namespace dlaunch
