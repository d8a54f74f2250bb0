#include "tests/sim/worker.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace dlaunch::sim {
namespace {

constexpr int kSamples = 12;
constexpr Duration kMeetingTime = std::chrono::minutes(5);
constexpr int kShare = -1, kBarrier = -2;  // Contribution::step

std::uint64_t mix(std::uint64_t value) { return Random(value).next(); }

// One rank's part: the sum over all ranks does not depend on their number.
std::uint64_t part_of(int step, int rank, int size) {
  std::uint64_t part = 0;
  for (int i = rank; i < kSamples; i += size) {
    part += mix(static_cast<std::uint64_t>(step * kSamples + i));
  }
  return part;
}

std::uint64_t next_state(std::uint64_t state, std::uint64_t sum) { return mix(state + sum); }

}  // namespace

std::uint64_t final_state(int steps) {
  std::uint64_t state = 0;
  for (int step = 0; step < steps; ++step) state = next_state(state, part_of(step, 0, 1));
  return state;
}

// -- Time

void Workers::after(Worker& worker, Duration most) {
  stage_.timeline.add({.at = stage_.now + stage_.random.up_to(most),
                       .kind = Happening::step,
                       .worker = worker.number,
                       .a = ++worker.turn});
}

void Workers::tell(int worker, Happening::Kind kind, int a, int b) {
  stage_.timeline.add({.at = stage_.now + stage_.random.up_to(stage_.scenario.pace.wire),
                       .kind = kind,
                       .worker = worker,
                       .a = a,
                       .b = b});
}

void Workers::boot(Worker& worker) { after(worker, stage_.scenario.pace.boot); }

void Workers::take(Worker& worker, const Happening& what) {
  switch (what.kind) {
    case Happening::step:
      if (what.a == worker.turn) step(worker);
      return;
    case Happening::met:
      if (what.a != worker.round || worker.phase != Phase::meeting) return;
      listener_.reached(worker, Moment::met);
      return compute(worker);
    case Happening::summed:
      if (what.a != worker.round || what.b != worker.collective) return;
      if (worker.phase != Phase::contributing) return;
      return take_sum(worker);
    case Happening::waited:
      // A fence reports a member that died, but not one that ended well without Goodbye.
      if (!stage_.ended_early || what.a != worker.round || worker.phase != Phase::meeting) return;
      return lose_round(worker, -1);
    case Happening::peer_lost:
      if (what.a == worker.round) lose_round(worker, what.b);
      return;
    case Happening::told:
      worker.notice = what;
      if (worker.phase == Phase::waiting) take_notice(worker);
      return;
    case Happening::fenced:
      worker.fence = what.a;
      worker.lost = what.b;
      // If no member was lost it leaves at its next commit.
      if (worker.fence > worker.round && what.b >= 0) lose_round(worker, what.b);
      return;
    default:
      return;
  }
}

void Workers::step(Worker& worker) {
  switch (worker.phase) {
    case Phase::booting:
      if (worker.linked && !worker.mute) return ask(worker);
      worker.phase = Phase::plain;
      return after(worker, worker.mute ? std::chrono::seconds(200)
                                       : stage_.scenario.steps * stage_.scenario.pace.compute);
    case Phase::plain:
      worker.finished = !worker.linked;
      return listener_.exits(worker, {.well = !worker.linked});
    case Phase::told:
      return enter(worker);
    case Phase::computing:
      return contribute(worker);
    case Phase::committing:
      return commit(worker);
    case Phase::leaving:
      return leave(worker);
    case Phase::exiting:
      worker.finished = true;
      return listener_.exits(worker, {.well = true});
    case Phase::waiting:
    case Phase::meeting:
    case Phase::contributing:
      return;
  }
}

// -- Rounds

// Like Membership::next_round(): takes earlier messages now.
void Workers::ask(Worker& worker) {
  const TimePoint arrives = stage_.now + stage_.random.up_to(stage_.scenario.pace.wire);
  worker.to_agent = std::max(worker.to_agent, arrives);
  stage_.timeline.add({.at = worker.to_agent,
                       .kind = Happening::to_agent,
                       .worker = worker.number,
                       .a = worker.round,
                       .version = worker.version});
  worker.phase = Phase::waiting;
  stage_.trace.say(stage_.now, "worker {} asks: left round {}, holds version {}", worker.number,
                   worker.round, worker.version);
  listener_.reached(worker, Moment::asked);
  if (worker.notice) take_notice(worker);
}

void Workers::take_notice(Worker& worker) {
  const Happening notice = *std::exchange(worker.notice, std::nullopt);
  worker.round = notice.a;
  worker.rank = notice.b;
  worker.size = notice.c;
  worker.collective = 0;
  worker.over = worker.linked_up = worker.synced = false;
  worker.phase = Phase::told;
  stage_.trace.say(stage_.now, "worker {} is rank {} of {} in round {}", worker.number, worker.rank,
                   worker.size, worker.round);
  listener_.reached(worker, Moment::told);
  if (worker.fence > worker.round && worker.lost >= 0) return lose_round(worker, worker.lost);
  after(worker, stage_.scenario.pace.notice);
}

void Workers::enter(Worker& worker) {
  worker.phase = Phase::meeting;
  worker.linked_up = true;
  const bool all = book_.enter(worker.round, worker.rank, worker.size, worker.number);
  if (!book_.wrong().empty()) return stage_.fail(book_.wrong());
  const auto& round = book_.at(worker.round);
  for (const int rank : round.gone) tell(worker.number, Happening::peer_lost, worker.round, rank);
  listener_.reached(worker, Moment::entered);
  bool apart = false;
  for (const int peer : round.seats) {
    if (peer == 0 || stage_.worker(peer).cut_off == worker.cut_off) continue;
    apart = true;
    tell(worker.number, Happening::peer_lost, worker.round, stage_.worker(peer).rank);
    tell(peer, Happening::peer_lost, worker.round, worker.rank);
  }
  if (apart) return;
  if (!all) {
    return stage_.timeline.add({.at = stage_.now + kMeetingTime,
                                .kind = Happening::waited,
                                .worker = worker.number,
                                .a = worker.round});
  }
  for (const int peer : round.seats) tell(peer, Happening::met, worker.round, 0);
}

int Workers::step_of(const Worker& worker) const {
  if (worker.collective == 0) return kShare;
  const int done = static_cast<int>(worker.version);
  return done == stage_.scenario.steps ? kBarrier : done;
}

void Workers::compute(Worker& worker) {
  worker.phase = Phase::computing;
  after(worker, step_of(worker) < 0 ? stage_.scenario.pace.wire : stage_.scenario.pace.compute);
}

void Workers::contribute(Worker& worker) {
  const int step = step_of(worker);
  worker.phase = Phase::contributing;
  Contribution part{.round = worker.round, .step = step};
  if (step >= 0) part.part = part_of(step, worker.rank, worker.size);
  if (step == kShare) part.version = worker.version, part.state = worker.state;
  const bool all = book_.contribute(worker.round, worker.rank, worker.collective, part);
  if (!book_.wrong().empty()) return stage_.fail(book_.wrong());
  listener_.reached(worker, step == kBarrier ? Moment::barrier : Moment::contributed);
  if (!all) return;
  const auto sum = book_.sum(worker.round, worker.collective);
  if (step == kShare) listener_.agreed(worker.round, sum.version);
  for (const int peer : book_.at(worker.round).seats) {
    tell(peer, Happening::summed, worker.round, worker.collective);
  }
}

void Workers::take_sum(Worker& worker) {
  const int step = step_of(worker);
  const auto sum = book_.sum(worker.round, worker.collective);
  if (!book_.wrong().empty()) return stage_.fail(book_.wrong());
  if (step == kBarrier) {
    worker.phase = Phase::exiting;
    listener_.reached(worker, Moment::finished);
    return after(worker, stage_.scenario.pace.notice);
  }
  worker.next_version = step == kShare ? sum.version : worker.version + 1;
  worker.next_state = step == kShare ? sum.state : next_state(worker.state, sum.parts);
  worker.phase = Phase::committing;
  listener_.reached(worker, Moment::result);
  after(worker, stage_.scenario.pace.wire);
}

void Workers::commit(Worker& worker) {
  worker.version = worker.next_version;
  worker.state = worker.next_state;
  worker.synced = true;
  ++worker.collective;
  stage_.trace.say(stage_.now, "worker {} holds version {}", worker.number, worker.version);
  listener_.committed(worker);
  listener_.reached(worker, worker.collective == 1 ? Moment::synced : Moment::committed);
  compute(worker);
  const bool stepped = worker.collective > 1;
  if (worker.over || (stepped && worker.fence > worker.round)) lose_round(worker, worker.lost);
}

// -- Losses

void Workers::lose_round(Worker& worker, int lost) {
  switch (worker.phase) {
    case Phase::told:
    case Phase::meeting:
    case Phase::computing:
    case Phase::contributing:
      break;
    case Phase::committing:  // needs no other rank
      worker.over = true;
      worker.lost = lost;
      return;
    default:
      return;
  }
  stage_.trace.say(stage_.now, "worker {} loses round {} (rank {})", worker.number, worker.round,
                   lost);
  worker.phase = Phase::leaving;
  worker.lost = lost;
  listener_.reached(worker, Moment::leaving);
  after(worker, stage_.scenario.pace.notice);
}

void Workers::leave(Worker& worker) {
  if (worker.lost >= 0 && stage_.random.chance(stage_.scenario.gives_up)) {
    return listener_.exits(worker, {.well = false, .blames = worker.lost});
  }
  cut_links(worker);
  ask(worker);
}

// A round whose members are all on one side goes on.
void Workers::part() {
  for (Worker& worker : stage_.workers) {
    if (worker.life != Worker::running || !worker.linked_up) continue;
    for (const int peer : book_.at(worker.round).seats) {
      if (peer == 0 || stage_.worker(peer).cut_off == worker.cut_off) continue;
      tell(worker.number, Happening::peer_lost, worker.round, stage_.worker(peer).rank);
    }
  }
}

void Workers::cut_links(Worker& worker) {
  if (!std::exchange(worker.linked_up, false)) return;
  book_.leave(worker.round, worker.rank);
  for (const int peer : book_.at(worker.round).seats) {
    if (peer == 0 || peer == worker.number) continue;
    tell(peer, Happening::peer_lost, worker.round, worker.rank);
  }
}

}  // namespace dlaunch::sim
