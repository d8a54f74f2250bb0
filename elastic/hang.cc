#include "elastic/hang.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr Duration kJump = std::chrono::seconds(10);

const char* they_are(const RankSet& ranks) { return ranks.size() == 1 ? "it is" : "they are"; }

// No rank is known to wait for another if all are idle, or some quiet.
bool is_wait(const Hang& hang) {
  return hang.key.kind != Hang::Key::idle && hang.key.kind != Hang::Key::quiet;
}

}  // namespace

Duration report_still_after(Duration hang_timeout, Duration hang_warning) {
  const Duration matters = std::min(hang_timeout, hang_warning);
  if (matters == Duration::max()) return matters;
  return std::max<Duration>(matters / 8, std::chrono::milliseconds(1));
}

std::vector<HangJudge::Action> HangJudge::step(TimePoint now, const Event& event) {
  actions_.clear();
  pass_time(now);
  std::visit([&](const auto& what) { on(now, what); }, event);
  return std::move(actions_);
}

std::optional<TimePoint> HangJudge::deadline() const { return deadline_; }

void HangJudge::on(TimePoint, const NewRound&) {
  ranks_.clear();
  cases_.clear();
  deadline_.reset();
  end_checks();
  traced_ = false;
  stopped_by_user_.clear();
  gone_at_ = {};
}

void HangJudge::on(TimePoint now, const Gone& event) {
  ranks_.erase(event.rank);
  if (event.concerns_others) {
    cases_.clear();
    gone_at_ = now;
  } else {
    leave_out_of_cases(event.rank);
  }
  for (auto& [number, rank] : ranks_) {
    for (auto& [group, at] : rank.groups) at.still_since = now;
    if (rank.beat && event.concerns_others) rank.beat = now;
    if (rank.active) rank.active = now;
  }
  judge(now);
}

// Only what a rank is itself to blame for goes on without the other.
void HangJudge::leave_out_of_cases(int rank) {
  for (auto& [of, its] : std::exchange(cases_, {})) {
    Hang::Key key = of;
    key.culprits.erase(rank);
    const bool own = key.kind == Hang::Key::no_heartbeat || key.kind == Hang::Key::stopped;
    if (own && !key.culprits.empty()) cases_.emplace(std::move(key), std::move(its));
  }
}

void HangJudge::on(TimePoint now, const Suspended& event) {
  suspended_ = event.yes;
  judge(now);
}

void HangJudge::on(TimePoint now, const Clock&) { judge(now); }

void HangJudge::on(TimePoint now, const Samples& event) {
  const RankSet stopped = ranks_in(ranks_, ProcessState::stopped);
  for (const ProgressSample& sample : event) take(now, sample);
  tell_of_stops(stopped);
  tell_of_traced();
  judge(now);
}

// Shifts all waiting forward over time that does not count.
void HangJudge::pass_time(TimePoint now) {
  const Duration passed = now - last_.value_or(now);
  last_ = now;
  if (passed <= kJump && !is_held(now)) return;
  if (passed > kJump) cases_.clear();
  for (auto& [number, rank] : ranks_) {
    const auto later = [&](TimePoint since) { return passed > kJump ? now : since + passed; };
    rank.stopped_since = later(rank.stopped_since);
    if (rank.beat) rank.beat = later(*rank.beat);
    if (rank.active) rank.active = later(*rank.active);
    for (auto& [group, at] : rank.groups) at.still_since = later(at.still_since);
  }
}

void HangJudge::take(TimePoint now, const ProgressSample& sample) {
  RankProgress& rank = ranks_[sample.rank];
  const bool stopped = sample.state == ProcessState::stopped;
  if (stopped && rank.state != ProcessState::stopped) rank.stopped_since = now;
  rank.state = sample.state;
  rank.heard = now;
  take_sign(now, stopped, sample.beat, rank.beat);
  take_sign(now, stopped, sample.quiet, rank.active);
  const auto [it, is_new] = rank.groups.try_emplace(sample.group);
  RankProgress::Position& at = it->second;
  const bool moved = is_new || at.seq != sample.seq || at.inside != sample.inside;
  // The age may only shorten our own observation: it jumps when its host was suspended.
  const Duration age = std::max(Duration::zero(), sample.age);
  const TimePoint by_age = std::max(now - age, gone_at_);
  const TimePoint since =
      moved ? now - std::clamp(sample.seen, Duration::zero(), age) : at.still_since;
  at.still_since = stopped ? now : std::max(since, by_age);
  at.seq = sample.seq;
  at.inside = sample.inside;
  at.what = sample.what;
}

// As for the position: the age may only shorten our own observation.
void HangJudge::take_sign(TimePoint now, bool stopped, std::optional<Duration> age,
                          std::optional<TimePoint>& sign) const {
  if (!age) return sign.reset();
  const TimePoint by_age = std::max(now - std::max(Duration::zero(), *age), gone_at_);
  sign = stopped ? now : std::max(sign.value_or(by_age), by_age);
}

void HangJudge::tell_of_stops(const RankSet& before) {
  const RankSet now = ranks_in(ranks_, ProcessState::stopped);
  RankSet stopped, continued;
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                      std::inserter(stopped, stopped.end()));
  std::set_difference(before.begin(), before.end(), now.begin(), now.end(),
                      std::inserter(continued, continued.end()));
  if (suspended_) stopped_by_user_.merge(std::exchange(stopped, {}));
  std::erase_if(continued, [this](int rank) { return stopped_by_user_.erase(rank) > 0; });
  if (!stopped.empty()) {
    const std::string then = config_.stop_limit == Duration::max()
                                 ? "the others wait"
                                 : fmt::format("{} replaced after {}", they_are(stopped),
                                               format_duration(config_.stop_limit));
    actions_.push_back(
        Warn{*stopped.begin(),
             fmt::format("{} {} stopped (SIGSTOP, SIGTSTP, or it reads the terminal); {}",
                         in_words(stopped), is(stopped), then)});
  }
  if (!continued.empty()) {
    actions_.push_back(Warn{*continued.begin(), fmt::format("{} {} no longer stopped",
                                                            in_words(continued), is(continued))});
  }
}

void HangJudge::tell_of_traced() {
  const RankSet traced = ranks_in(ranks_, ProcessState::traced);
  if (std::exchange(traced_, !traced.empty()) || traced.empty()) return;
  actions_.push_back(
      Warn{*traced.begin(), fmt::format("{} {} traced, by a debugger perhaps; dlaunch replaces no "
                                        "worker that hangs meanwhile",
                                        in_words(traced), is(traced))});
}

void HangJudge::judge(TimePoint now) {
  deadline_.reset();
  if (is_held(now)) return;
  const auto hangs = find(now);
  close_cases(hangs);
  const bool any_quiet = std::ranges::any_of(
      hangs, [](const Hang& hang) { return hang.key.kind == Hang::Key::quiet; });
  if (!any_quiet) end_checks();
  for (const Hang& hang : hangs) pursue(now, hang);
}

bool HangJudge::is_held(TimePoint now) const {
  const bool silent = std::ranges::any_of(
      ranks_, [&](const auto& entry) { return now - entry.second.heard > config_.silence; });
  return silent || suspended_ || !ranks_in(ranks_, ProcessState::traced).empty() ||
         ranks_in(ranks_, ProcessState::stopped).size() == ranks_.size();
}

std::vector<Hang> HangJudge::waits(TimePoint now, Duration at_least) const {
  std::vector<Hang> hangs;
  if (!is_held(now)) hangs = find_hangs(now, ranks_);
  std::erase_if(hangs, [&](const Hang& hang) { return !is_wait(hang) || hang.waited < at_least; });
  return hangs;
}

std::vector<Hang> HangJudge::find(TimePoint now) const {
  const bool all = config_.hang_timeout != Duration::max();
  std::vector<Hang> hangs = all ? find_hangs(now, ranks_) : waits(now, Duration::zero());
  if (config_.stop_limit == Duration::max()) return hangs;
  for (const int rank : ranks_in(ranks_, ProcessState::stopped)) {
    Hang hang;
    hang.key.kind = Hang::Key::stopped;
    hang.key.culprits = {rank};
    hang.witness = std::ranges::find_if(ranks_, [](const auto& entry) {
                     return entry.second.state != ProcessState::stopped;
                   })->first;
    hang.waited = now - ranks_.at(rank).stopped_since;
    hang.sentence =
        fmt::format("rank {} is stopped (SIGSTOP, SIGTSTP, or it reads the terminal)", rank);
    hangs.push_back(std::move(hang));
  }
  return hangs;
}

// Forgets cases that are over, and says so.
void HangJudge::close_cases(const std::vector<Hang>& hangs) {
  for (auto it = cases_.begin(); it != cases_.end();) {
    const auto found = [&](auto same) { return std::ranges::any_of(hangs, same); };
    const Hang::Key& key = it->first;
    if (found([&](const Hang& hang) { return hang.key == key; })) {
      ++it;
      continue;
    }
    const bool goes_on = !found(
        [&](const Hang& hang) { return hang.key.group == key.group && hang.key.seq == key.seq; });
    if (goes_on && it->second.warned && !it->second.replaced) {
      warn_after_ = std::max(warn_after_, 2 * it->second.waited);
      actions_.push_back(Warn{*key.culprits.begin(), it->second.about + ": this is over"});
    }
    it = cases_.erase(it);
  }
}

Duration HangJudge::warn_after(const Hang& hang) const {
  const Duration limit = config_.hang_timeout;
  const Duration half = limit == Duration::max() ? limit : limit / 2;
  return is_wait(hang) ? std::min(warn_after_, half) : half;
}

std::string HangJudge::warning(const Hang& hang) const {
  const RankSet& culprits = hang.key.culprits;
  const std::string next =
      config_.hang_timeout != Duration::max()
          ? fmt::format("{} replaced after {}", they_are(culprits),
                        format_duration(config_.hang_timeout))
          : fmt::format(
                "'dlaunchctl stacks {}' shows what goes on there, --hang-timeout would "
                "replace {}",
                *culprits.begin(), culprits.size() == 1 ? "it" : "them");
  return fmt::format("{}, for {} now; {}", hang.sentence, format_duration(hang.waited), next);
}

void HangJudge::end_checks() {
  checked_.reset();
  confirms_ = false;
}

// Twice: a rank that computes may be in a collective at the moment of one look.
void HangJudge::check(TimePoint now, const Hang& hang) {
  const Duration limit = config_.hang_timeout;
  const Duration first = limit - limit / 4;
  TimePoint due = deadline_after(now - hang.waited, confirms_ ? limit : first);
  if (checked_) due = std::max(due, deadline_after(*checked_, confirms_ ? limit - first : first));
  if (now < due) return wake_at(due);
  checked_ = now;
  confirms_ = !confirms_;
  actions_.push_back(Check{hang.key.culprits, hang.busy,
                           fmt::format("{}, for {}", hang.sentence, format_duration(hang.waited)),
                           hang.waited});
}

void HangJudge::pursue(TimePoint now, const Hang& hang) {
  if (hang.key.kind == Hang::Key::quiet) return check(now, hang);
  const bool stop = hang.key.kind == Hang::Key::stopped;
  const Duration limit = stop ? config_.stop_limit : config_.hang_timeout;
  const RankSet& culprits = hang.key.culprits;
  const TimePoint since = now - hang.waited;
  const Duration dump_time = std::min(config_.dump_time, limit / 4);
  const TimePoint dump_at = deadline_after(since, limit - dump_time);
  const TimePoint first = stop ? dump_at : deadline_after(since, warn_after(hang));
  if (now < first) {  // it moved, and stopped again
    cases_.erase(hang.key);
    return wake_at(first);
  }
  Case& the_case = cases_[hang.key];
  if (the_case.replaced) return;
  the_case.about = hang.sentence;
  the_case.waited = hang.waited;
  if (!stop && !std::exchange(the_case.warned, true)) {
    actions_.push_back(Warn{*culprits.begin(), warning(hang)});
  }
  if (now < dump_at) return wake_at(dump_at);
  if (!the_case.dumped) {
    the_case.dumped = now;
    RankSet ranks = culprits;
    if (hang.witness >= 0) ranks.insert(hang.witness);
    actions_.push_back(Dump{std::move(ranks)});
  }
  const TimePoint replace_at = deadline_after(*the_case.dumped, dump_time);
  if (now < replace_at) return wake_at(replace_at);
  the_case.replaced = true;
  actions_.push_back(Replace{culprits,
                             fmt::format("{}, for {}", hang.sentence, format_duration(hang.waited)),
                             hang.waited});
}

void HangJudge::wake_at(TimePoint time) {
  if (time != kNever) deadline_ = std::min(deadline_.value_or(kNever), time);
}

}  // namespace dlaunch
