#include "launcher/lead/monitor/progress_watch.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

constexpr Duration kHangInterval = std::chrono::milliseconds(200);
constexpr Duration kSeesSigns = std::chrono::minutes(1);

// For the answers of all hosts: then it asks again.
Duration patience_of(const ProgressWatch::Options& options) {
  return std::min<Duration>(std::chrono::seconds(2), options.stragglers.detection.window_time / 2);
}

Duration interval_of(const ProgressWatch::Options& options) {
  const Duration tenth = options.stragglers.detection.window_time / 10;
  const Duration slow =
      std::clamp<Duration>(tenth, std::chrono::milliseconds(100), std::chrono::seconds(1));
  return options.hang_timeout != Duration::max() ? std::min(slow, kHangInterval) : slow;
}

HangConfig config_of(const ProgressWatch::Options& options) {
  return {.hang_timeout = options.hang_timeout,
          .warn_after = options.hang_warning,
          .stop_limit = options.hang_timeout};
}

RankSet slow_ranks(const Slowness& slow) {
  return slow.peer < 0 ? RankSet{slow.rank} : RankSet{slow.rank, slow.peer};
}

using SlowAction = job_event::Straggler::Action;

job_event::Straggler event_of(SlowAction action, const Slowness& slow) {
  return {action, slow.rank, slow.peer, slow.ratio, slow.sentence};
}
job_event::Straggler event_of(const StragglerJudge::Warn& warn) {
  return event_of(SlowAction::slow, warn.slowness);
}
job_event::Straggler event_of(const StragglerJudge::Clear& clear) {
  return event_of(SlowAction::over, clear.slowness);
}
job_event::Straggler event_of(const StragglerJudge::Restart& restart) {
  return {SlowAction::restart, restart.rank, -1, {}, restart.why};
}
job_event::Straggler event_of(const StragglerJudge::Evict& evict) {
  return {SlowAction::evict, evict.rank, -1, {}, evict.why};
}
job_event::Straggler event_of(const StragglerJudge::Refrain& refrain) {
  return {SlowAction::refrain, refrain.rank, -1, {}, refrain.why};
}

}  // namespace

ProgressWatch::ProgressWatch(const Options& options, Effects& effects)
    : effects_(effects),
      looks_for_hangs_(std::min(options.hang_timeout, options.hang_warning) != Duration::max()),
      looks_for_slow_(options.stragglers.mode != StragglerMode::off),
      interval_(interval_of(options)),
      patience_(patience_of(options)),
      hangs_(config_of(options)),
      stragglers_(options.stragglers) {
  if (looks_for_hangs_ || looks_for_slow_) next_look_ = effects_.now() + interval_;
  if (options.hang_timeout != Duration::max()) {
    tell_at_ = effects_.now() + std::min(kSeesSigns, options.hang_timeout / 2);
  }
}

void ProgressWatch::new_round(int round, const StragglerJudge::NewRound& sizes,
                              std::optional<Duration> recovered) {
  round_ = round;
  std::erase_if(ranks_, [=](const auto& known) { return known.second.rank.round < round; });
  feed(HangJudge::NewRound{});
  digest_.reset();
  feed(StragglerJudge::Event(sizes));
  if (recovered) feed(StragglerJudge::Event(StragglerJudge::Recovered{*recovered}));
}

void ProgressWatch::gone(int rank) {
  ranks_.erase(rank);
  feed(HangJudge::Gone{.rank = rank, .concerns_others = !effects_.are_tasks()});
}

void ProgressWatch::lost(int node) {
  RankSet there;
  for (const auto& [rank, known] : ranks_) {
    if (known.node == node) there.insert(rank);
  }
  for (const int rank : there) gone(rank);
}

void ProgressWatch::on_clock() {
  if (!next_look_ || effects_.now() < *next_look_) return;
  next_look_ = effects_.now() + interval_;
  tell_what_is_seen();
  if (looks_for_hangs_) look();
  if (looks_for_slow_) look_for_slow();
}

void ProgressWatch::tell_what_is_seen() {
  if (!tell_at_ || effects_.now() < *tell_at_ || ranks_.empty()) return;
  tell_at_.reset();
  const bool only_outside = std::ranges::all_of(
      ranks_, [](const auto& entry) { return entry.second.rank.quiet.has_value(); });
  if (!only_outside) return;
  effects_.warn(
      {},
      "--hang-timeout watches only the workers' output and CPU time: the program has sent no "
      "heartbeat and has not used libdlring so far; see HANGS in dlaunch(1)");
}

void ProgressWatch::stop() {
  stopped_ = true;
  next_look_.reset();
}

int ProgressWatch::pid_of(int rank) const {
  const auto it = ranks_.find(rank);
  return it == ranks_.end() ? 0 : it->second.rank.pid;
}

// -- Hangs

// A rank that waits for the next round hangs in none; one that does not leave its round may hang.
void ProgressWatch::take(int node, const NodeSeen& seen) {
  if (stopped_) return;
  bool urgent = false;
  for (const NodeRank& rank : seen.ranks) {
    const auto before = ranks_.find(rank.rank);
    if (rank.round < round_ || rank.rank < 0) continue;
    if (rank.left) {
      if (before != ranks_.end() && before->second.rank.pid == rank.pid) gone(rank.rank);
      continue;
    }
    urgent = urgent || is_held(rank.state) ||
             (before != ranks_.end() && is_held(before->second.rank.state));
    Known& known = ranks_[rank.rank];
    auto places = std::exchange(known.rank.positions, {});
    const bool same = known.rank.round == rank.round && known.rank.pid == rank.pid;
    known = {node, effects_.now(), rank};
    if (rank.moves && same) known.rank.positions = std::move(places);
  }
  if (urgent) look();
}

// A rank of a round that is being formed does not wait for the members of the round before.
bool ProgressWatch::is_watched(const Known& known) {
  const bool in_round = known.rank.round == round_ || effects_.are_tasks();
  return in_round && effects_.is_heard(known.node);
}

void ProgressWatch::look() {
  if (stopped_) return;
  const auto now = effects_.now();
  HangJudge::Samples samples;
  for (const auto& [rank, known] : ranks_) {
    if (is_watched(known)) add_samples(now, known, samples);
  }
  feed(HangJudge::Event(samples));
  if (looks_for_hangs_) feed(HangJudge::Clock{});
}

void ProgressWatch::add_samples(TimePoint now, const Known& known,
                                HangJudge::Samples& samples) const {
  ProgressSample sample{.rank = known.rank.rank, .state = known.rank.state};
  const auto age = [&](std::optional<Duration> then) {
    return then > Duration::zero() ? *then + (now - known.told) : then;
  };
  sample.beat = age(known.rank.beat);
  sample.quiet = age(known.rank.quiet);
  for (const NodePosition& at : known.rank.positions) {
    sample.group = at.group;
    sample.seq = at.seq;
    sample.inside = at.inside;
    sample.what = at.what;
    sample.age = sample.seen = known.rank.moves ? Duration::zero() : at.still + (now - known.told);
    samples.push_back(sample);
  }
  if (known.rank.positions.empty()) samples.push_back(sample);
}

void ProgressWatch::feed(const HangJudge::Event& event) {
  for (const auto& action : hangs_.step(effects_.now(), event)) {
    if (const auto* warn = std::get_if<HangJudge::Warn>(&action)) {
      effects_.happened(job_event::HangFinding{
          job_event::HangFinding::Action::warning, {warn->rank}, warn->sentence});
      effects_.warn({warn->rank}, warn->sentence);
    } else if (const auto* dump = std::get_if<HangJudge::Dump>(&action)) {
      effects_.dump(dump->ranks);
    } else if (const auto* replace = std::get_if<HangJudge::Replace>(&action)) {
      effects_.replace_hung(*replace);
    } else if (const auto* check = std::get_if<HangJudge::Check>(&action)) {
      effects_.replace_if_others_wait(*check);
    }
  }
}

// -- Stragglers

void ProgressWatch::look_for_slow() {
  const std::set<int> nodes = effects_.nodes();
  if (stopped_ || nodes.empty()) return;
  // A busy host answers late; without its answers nobody would see that it is slow.
  const auto now = effects_.now();
  if (digest_.awaits(nodes) && now < looked_ + patience_) return;
  looked_ = now;
  const NodeLook look = digest_.begin(nodes);
  for (const int node : nodes) effects_.ask(node, look);
}

void ProgressWatch::take(int node, const NodeSpans& spans) {
  const auto cut = stopped_ ? std::nullopt : digest_.add(node, spans);
  if (!cut) return;
  for (const int each : effects_.nodes()) effects_.ask(each, *cut);
}

void ProgressWatch::take(int node, const NodeTimes& times) {
  const auto step = stopped_ ? std::nullopt : digest_.add(node, times);
  if (!step) return;
  effects_.measured(*step);
  feed(StragglerJudge::Event(*step));
}

void ProgressWatch::feed(const StragglerJudge::Event& event) {
  for (const auto& action : stragglers_.step(effects_.now(), event)) {
    effects_.happened(std::visit([](const auto& what) { return event_of(what); }, action));
    if (const auto* warn = std::get_if<StragglerJudge::Warn>(&action)) {
      effects_.warn(slow_ranks(warn->slowness), warn->slowness.sentence);
    } else if (const auto* clear = std::get_if<StragglerJudge::Clear>(&action)) {
      effects_.warn(slow_ranks(clear->slowness), clear->slowness.sentence + ": this is over");
    } else if (const auto* restart = std::get_if<StragglerJudge::Restart>(&action)) {
      effects_.replace_slow(restart->rank, restart->why, false);
    } else if (const auto* evict = std::get_if<StragglerJudge::Evict>(&action)) {
      effects_.replace_slow(evict->rank, evict->why, true);
    } else if (const auto* refrain = std::get_if<StragglerJudge::Refrain>(&action)) {
      effects_.warn({refrain->rank}, refrain->why);
    }
  }
}

}  // namespace dlaunch
