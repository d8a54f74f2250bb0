#include "elastic/host_starts.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr Duration kLongestPause = std::chrono::seconds(60);
constexpr Duration kFirstCooldown = std::chrono::seconds(10);
constexpr Duration kLongestCooldown = std::chrono::hours(1);
constexpr Duration kClean = std::chrono::minutes(10);
constexpr int kLeftAloneAfter = 3;                             // failures
constexpr Duration kLeastPatience = std::chrono::seconds(15);  // with a login by another host
constexpr Duration kMostPatience = std::chrono::seconds(60);
constexpr int kMostAttempts = 8;  // before a started host has logged in to another

Duration doubled(Duration first, int times, Duration longest) {
  Duration pause = first;
  for (int i = 0; i < times && pause < longest; ++i) pause *= 2;
  return std::min(pause, longest);
}

}  // namespace

HostStarts::HostStarts(const Config& config, std::vector<Host> hosts)
    : config_(config), tree_(config.tree), proven_(config.tree == Tree::on), random_(config.seed) {
  for (Host& host : hosts) places_.push_back({.host = std::move(host)});
}

std::vector<HostStarts::Action> HostStarts::step(TimePoint now, const Event& event) {
  actions_.clear();
  now_ = now;
  std::visit([this](const auto& what) { on(what); }, event);
  start_due();
  return std::move(actions_);
}

std::optional<TimePoint> HostStarts::deadline() const {
  TimePoint next = kNever;
  for (const Place& place : places_) {
    // A due place that still waits has no room: another event makes it.
    if (place.life == Life::waiting && place.next > now_) next = std::min(next, place.next);
    if (waits_for_other(place)) next = std::min(next, deadline_after(place.asked, patience()));
  }
  return next == kNever ? std::nullopt : std::optional(next);
}

bool HostStarts::all_answered() const {
  return std::ranges::all_of(places_, [](const Place& place) {
    return place.answered || place.host.here || place.life == Life::vacant;
  });
}

// -- Who logs in

int HostStarts::logins_by(int node) const {
  return static_cast<int>(std::ranges::count_if(places_, [=](const Place& place) {
    return place.life == Life::starting && place.by == node;
  }));
}

Duration HostStarts::patience() const {
  return std::clamp<Duration>(2 * slowest_, kLeastPatience, kMostPatience);
}

// Those that have waited longest come first.
HostStarts::Place* HostStarts::longest_waiting(bool ours) {
  Place* first = nullptr;
  for (Place& place : places_) {
    if (place.life != Life::waiting || place.next > now_ || place.ours != ours) continue;
    if (first == nullptr || place.next < first->next) first = &place;
  }
  return first;
}

void HostStarts::start_due() {
  while (Place* place = longest_waiting(true)) {
    if (logins_by(kSelf) >= config_.at_once) break;
    log_in(*place, kSelf);
  }
  while (Place* place = longest_waiting(false)) {
    const auto by = login_for_any();
    if (!by) return;
    log_in(*place, *by);
  }
  if (!proven_ || tree_ == Tree::off) take_back_attempts();
}

void HostStarts::log_in(Place& place, int by) {
  place.life = Life::starting;
  place.by = by;
  place.asked = now_;
  actions_.push_back(LogIn{node_of(place), place.host.name, by});
}

bool HostStarts::helps(const Place& place) const {
  return place.linked && place.life == Life::running && !place.failed_us;
}

// The number of logins for each host that logs in now or soon: this one, those that run, and those
// to which it logged in before any ran.
int HostStarts::fair_share() const {
  const auto helpers = std::ranges::count_if(
      places_, [](const Place& place) { return place.life == Life::running && !place.failed_us; });
  if (helpers == 0) return config_.at_once;
  const auto soon = std::ranges::count_if(places_, [this](const Place& place) {
    return place.life == Life::starting && place.by == kSelf && place.asked < first_ready_;
  });
  const auto waiting = std::ranges::count_if(places_, [this](const Place& place) {
    return waits_for_other(place) ||
           (place.life == Life::waiting && place.next <= now_ && !place.ours);
  });
  const auto all = helpers + soon + 1;
  return static_cast<int>(
      std::clamp<std::ptrdiff_t>((waiting + all - 1) / all, 1, config_.at_once));
}

// Who logs in to the next host that anyone may start; nullopt: nobody has room.
std::optional<int> HostStarts::login_for_any() const {
  const int own = logins_by(kSelf);
  const bool as_without = tree_ == Tree::off || !proven_;
  if (as_without && own < config_.at_once) return kSelf;
  if (tree_ == Tree::off) return std::nullopt;
  std::vector<int> loads(places_.size());
  int others = 0;
  for (const Place& place : places_) {
    if (!waits_for_other(place)) continue;
    ++loads[static_cast<std::size_t>(place.by)];
    ++others;
  }
  if (!proven_ && others >= kMostAttempts) return std::nullopt;
  std::optional<int> idlest;
  int least = fair_share();
  if (own < least) idlest = kSelf, least = own;
  for (std::size_t node = 0; node < places_.size(); ++node) {
    if (!helps(places_[node]) || loads[node] >= least) continue;
    idlest = static_cast<int>(node);
    least = loads[node];
  }
  return idlest;
}

// No other host waits. As long as no started host has logged in to another, or once one has failed,
// the attempts must not make the start longer.
void HostStarts::take_back_attempts() {
  for (Place& place : places_) {
    if (!waits_for_other(place)) continue;
    if (logins_by(kSelf) >= config_.at_once) return;
    actions_.push_back(TakeBack{node_of(place)});
    log_in(place, kSelf);
  }
}

// From the host that should have logged in there.
void HostStarts::take_over(Place& place, const std::string& why) {
  Place& helper = at(place.by);
  place.life = Life::waiting;
  place.ours = true;
  place.next = now_;
  if (why.empty()) return;
  helper.failed_us = true;
  const bool gives_up = config_.tree == Tree::attempt;
  if (gives_up) tree_ = Tree::off;
  if (std::exchange(told_of_tree_, true)) return;
  tell(
      fmt::format("host {} did not start host {} ({}): this host {}; --ssh-tree off has it log "
                  "in to all hosts itself",
                  helper.host.name, place.host.name, why,
                  gives_up ? "logs in to all further hosts"
                           : "does it, also after later failures, which it does not report"));
}

// -- Events

void HostStarts::on(const Start&) {
  for (Place& place : places_) {
    if (place.host.here || place.host.name.empty()) continue;
    place.life = Life::waiting;
    place.next = now_;
  }
}

void HostStarts::on(const Ready& ready) {
  Place& place = at(ready.node);
  if (waits_for_other(place)) proven_ = true;
  if (place.life == Life::starting) {
    place.life = Life::running;
    slowest_ = std::max(slowest_, now_ - place.asked);
  }
  first_ready_ = std::min(first_ready_, now_);
  place.answered = true;
  place.since = now_;
  place.out_of_reach = 0;
}

void HostStarts::on(const Failed& failed) {
  Place& place = at(failed.node);
  // The caller that waits for the first answers reports all of them together.
  const bool news = std::exchange(place.answered, true) && place.why != failed.why;
  place.why = failed.why;
  if (place.life == Life::leaving) {
    has_left(place);
  } else if (failed.reached) {
    ++place.failures;
    place.out_of_reach = 0;
    again(place, pause_after(place.failures), news || left_alone(place));
  } else {
    again(place, doubled(kFirstPause, place.out_of_reach++, kLongestPause), news);
  }
}

void HostStarts::on(const Linked& linked) {
  at(linked.node).linked = linked.here;
  // Another dlaunch there does not know what this one was asked.
  for (Place& place : places_) {
    if (!waits_for_other(place) || place.by != linked.node) continue;
    actions_.push_back(TakeBack{node_of(place)});
    take_over(place, "");
  }
}

void HostStarts::on(const Refused& refused) {
  Place& place = at(refused.node);
  if (waits_for_other(place)) take_over(place, refused.why);
}

void HostStarts::on(const Clock&) {
  for (Place& place : places_) {
    if (!waits_for_other(place) || now_ < deadline_after(place.asked, patience())) continue;
    actions_.push_back(TakeBack{node_of(place)});
    take_over(place, "no success within " + format_duration(patience()));
  }
}

void HostStarts::on(const Ended& ended) {
  Place& place = at(ended.node);
  place.why = ended.why;
  if (place.life == Life::leaving) return has_left(place);
  place.failures = now_ - place.since < kClean ? place.failures + 1 : 1;
  again(place, pause_after(place.failures), true);
}

bool HostStarts::left_alone(const Place& place) {
  return place.failures >= kLeftAloneAfter && place.out_of_reach == 0;
}

Duration HostStarts::pause_after(int failures) {
  if (failures < kLeftAloneAfter) return doubled(kFirstPause, failures - 1, kLongestPause);
  return doubled(kFirstCooldown, failures - kLeftAloneAfter, kLongestCooldown);
}

void HostStarts::again(Place& place, Duration pause, bool news) {
  if (!config_.again) {
    place.life = Life::over;
    return;
  }
  pause = jittered(pause, random_());
  place.life = Life::waiting;
  place.next = deadline_after(now_, pause);
  if (!news) return;
  const std::string in = format_duration(pause);
  if (left_alone(place)) {
    tell(fmt::format("host {} failed {} times in a row ({}); it is left alone for {}",
                     place.host.name, place.failures, place.why, in));
  } else {
    tell(fmt::format("host {}: {}; starting it again in {}", place.host.name, place.why, in));
  }
}

// -- Hosts that the user takes out

void HostStarts::on(const Drain& drain) {
  Place& place = at(drain.node);
  place.drained = true;
  place.comes_back = false;
  if (place.life == Life::starting || place.life == Life::running) {
    leave(place);
  } else if (place.life != Life::leaving) {
    place.life = Life::vacant;
  }
}

void HostStarts::on(const Undrain& undrain) {
  Place& place = at(undrain.node);
  if (!std::exchange(place.drained, false) || place.host.here) return;
  if (place.life == Life::vacant) return start_anew(place);
  if (undrain.runs) {
    place.life = place.answered ? Life::running : Life::starting;
  } else {
    place.comes_back = true;
  }
}

void HostStarts::leave(Place& place) {
  if (waits_for_other(place)) {  // a dlaunch that starts there nevertheless is refused
    actions_.push_back(TakeBack{node_of(place)});
    return has_left(place);
  }
  place.life = Life::leaving;
  actions_.push_back(Leave{node_of(place)});
}

void HostStarts::has_left(Place& place) {
  place.life = Life::vacant;
  if (std::exchange(place.comes_back, false)) start_anew(place);
}

void HostStarts::start_anew(Place& place) {
  place.life = Life::waiting;
  place.next = now_;
  place.answered = true;  // no caller waits for it
  place.failures = place.out_of_reach = 0;
  place.ours = place.failed_us = false;
  place.why.clear();
}

// -- The list

void HostStarts::on(const List& list) {
  const auto listed = [&](const std::string& name) {
    return std::ranges::any_of(list.hosts, [&](const Listed& host) { return host.name == name; });
  };
  for (std::size_t node = 0; node < places_.size(); ++node) {
    Place& place = places_[node];
    if (place.life == Life::vacant || place.host.here || listed(place.host.name)) continue;
    switch (place.life) {
      case Life::waiting:
      case Life::over:
        place.life = Life::vacant;
        tell(fmt::format("host {} is not listed any more", place.host.name));
        break;
      case Life::starting:
      case Life::running:
        tell(fmt::format("host {} is not listed any more; its workers leave at their next commit",
                         place.host.name));
        leave(place);
        break;
      case Life::vacant:
      case Life::leaving:
        break;
    }
  }
  std::erase_if(no_room_, [&](const std::string& name) { return !listed(name); });
  for (const Listed& host : list.hosts) take_in(host);
}

// A newcomer gets a place that was always vacant, or one that another host has left. A leaving host
// that is listed again must first leave.
void HostStarts::take_in(const Listed& listed) {
  const auto has_it = [&](const Place& place) {
    const bool taken = place.life != Life::vacant || place.host.here || place.drained;
    return taken && place.host.name == listed.name;
  };
  if (std::ranges::any_of(places_, has_it)) return;
  const auto fits = [&](const Place& place) {
    return place.life == Life::vacant && !place.host.here && !place.drained &&
           place.host.slots <= listed.slots;
  };
  auto free = std::ranges::find_if(
      places_, [&](const Place& place) { return fits(place) && place.host.name == listed.name; });
  if (free == places_.end()) free = std::ranges::find_if(places_, fits);
  if (free == places_.end()) {
    if (std::ranges::find(no_room_, listed.name) != no_room_.end()) return;
    no_room_.push_back(listed.name);
    return tell(fmt::format("host {} with {} slots is listed, but the job has no place for it",
                            listed.name, listed.slots));
  }
  free->host.name = listed.name;
  start_anew(*free);
  std::erase(no_room_, listed.name);
  tell(fmt::format("host {} is listed; starting it", listed.name));
}

std::string HostStarts::words(TimePoint now, int node) const {
  const Place& place = at(node);
  if (place.drained) return "";  // the caller that wanted that reports it
  switch (place.life) {
    case Life::waiting: {
      if (place.why.empty()) return "to be started";
      const std::string in = format_duration(std::max(place.next - now, Duration::zero()));
      return left_alone(place) ? fmt::format("left alone for {} after {} failures: {}", in,
                                             place.failures, place.why)
                               : fmt::format("started again in {}: {}", in, place.why);
    }
    case Life::starting:
      return "being started";
    case Life::leaving:
      return "leaving: it is not listed any more";
    case Life::over:
      return "lost: " + place.why;
    case Life::vacant:
    case Life::running:
      return "";
  }
  return "";
}

}  // namespace dlaunch
