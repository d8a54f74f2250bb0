#include "tests/sim/world.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/words.h"

namespace dlaunch::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLongest = 1h;  // from the last fault to the end
constexpr int kMostHappenings = 100'000;

bool is_worker_s(Happening::Kind kind) {
  return kind < Happening::to_agent || kind == Happening::told || kind == Happening::fenced ||
         kind == Happening::ends;
}

}  // namespace

World::World(const Scenario& scenario, std::uint64_t seed, Bug bug, bool traced)
    : stage_(scenario, seed, traced),
      saboteur_(bug),
      shell_(scenario.job, scenario.grace, *this, saboteur_),
      checker_(stage_, shell_),
      workers_(stage_, *this),
      faults_(scenario.faults),
      struck_(faults_.size()) {}

// -- Time

Outcome World::run() {
  for (std::size_t i = 0; i < faults_.size(); ++i) {
    if (faults_[i].moment != Moment::time) continue;
    stage_.timeline.add(
        {.at = kStart + faults_[i].at, .kind = Happening::fault, .a = static_cast<int>(i)});
  }
  if (stage_.scenario.first_leader_is_lost) {
    shell_.lose_leader(stage_.scenario.wrote_down ? AgentShell::Loss::written
                                                  : AgentShell::Loss::unwritten);
  }
  shell_.start();
  checker_.after_all();
  while (goes_on()) turn();
  outcome_.wrong = stage_.wrong;
  outcome_.rounds = shell_.job().round();
  outcome_.restarts = shell_.job().restarts_used();
  if (checker_.finish()) outcome_.end = checker_.finish()->end;
  return outcome_;
}

bool World::goes_on() const { return stage_.wrong.empty() && !checker_.finished(); }

void World::turn() {
  const TimePoint alarm = timer(), next = stage_.timeline.next();
  if (alarm == kNever && next == kNever) {
    return stage_.fail("nothing will ever happen again: the job waits for " +
                       shell_.job().waits_for());
  }
  const bool ring = alarm < next || (alarm == next && stage_.random.chance(50));
  stage_.now = std::max(stage_.now, ring ? alarm : next);
  outcome_.hash = Random(outcome_.hash ^ stage_.random.next() ^
                         static_cast<std::uint64_t>(stage_.now.time_since_epoch().count()))
                      .next();
  if (ring) {
    checker_.timer_rang = shell_.timer();
    shell_.on_timer();
  } else {
    happen(stage_.timeline.take());
  }
  checker_.after_all();
  if (timer() > stage_.now) checker_.check_joins();
  if (stage_.now > last_harm_ + kLongest) stage_.fail("the job does not end");
  if (++outcome_.happenings > kMostHappenings) stage_.fail("the job runs in a circle");
}

TimePoint World::clock() { return stage_.now + jumped_ + saboteur_.clock_error(stage_.now); }

// When it rings, in true time.
TimePoint World::timer() {
  const TimePoint due = shell_.timer();
  return due == kNever ? kNever : due - jumped_ - saboteur_.clock_error(stage_.now);
}

void World::happen(const Happening& what) {
  if (what.kind == Happening::fault) return strike(what.a, what.worker);
  if (what.kind == Happening::node_back) {
    stage_.trace.say(stage_.now, "node {} is back", what.a);
    for (Worker& worker : stage_.workers) worker.cut_off &= node_of(worker) != what.a;
    return shell_.on_node_back(what.a);
  }
  if (what.kind == Happening::attempt) return attempt(what.a);
  if (what.kind == Happening::take_over) {
    stage_.trace.say(stage_.now, "another leader takes over");
    checker_.led_since = stage_.now;
    return shell_.take_over();
  }
  Worker& worker = stage_.worker(what.worker);
  if (what.kind == Happening::to_agent) {
    // The agent ignores messages of processes that it does not know.
    if (worker.life == Worker::reaped) return;
    worker.connected = worker.asks = true;
    worker.heard.push_back(what.a);
    worker.asked = stage_.now;
    return shell_.on_ready(worker.slot,
                           {.worker = worker.number, .left = what.a, .version = what.version});
  }
  if (what.kind == Happening::reap) return reap(what.worker);
  if (worker.life != Worker::running) return;
  if (what.kind == Happening::goes_on) return resume(worker);
  const bool dies_at_last = worker.frozen && what.kind == Happening::ends;
  if (worker.stopped && !dies_at_last && is_worker_s(what.kind)) return worker.held.push_back(what);
  if (what.kind == Happening::ends) return take_signal(worker);
  workers_.take(worker, what);
}

// -- Processes

bool World::start(Slot slot, int number, int rank, int round) {
  stage_.workers.push_back({.number = number, .slot = slot});
  stage_.workers.back().started = stage_.now;
  Worker& worker = stage_.workers.back();
  worker.cut_off = worker.end_unknown = shell_.is_cut(slot);
  const Program program = stage_.scenario.program;
  worker.linked = program == Program::linked || (program == Program::mixed && slot % 2 == 0);
  harm_new(worker);
  if (worker.life == Worker::reaped) return false;
  stage_.trace.say(stage_.now, "worker {} starts in slot {} as rank {}, round {}", number, slot,
                   rank, round);
  reached(worker, Moment::spawned);
  worker.never_runs ? exits(worker, {}) : workers_.boot(worker);
  return true;
}

void World::exits(Worker& worker, AgentShell::End end) {
  if (worker.life != Worker::running) return;
  worker.life = Worker::dead;
  worker.ended = stage_.now;
  worker.end = end;
  checker_.exits(worker);
  if (!worker.finished) workers_.cut_links(worker);
  stage_.trace.say(stage_.now, "worker {} ends{}{}", worker.number, end.well ? " well" : "",
                   end.blames >= 0 ? fmt::format(", blames rank {}", end.blames) : "");
  stage_.timeline.add({.at = stage_.now + stage_.random.up_to(stage_.scenario.pace.notice),
                       .kind = Happening::reap,
                       .worker = worker.number});
}

void World::reap(int number) {
  Worker& worker = stage_.worker(number);
  if (std::exchange(worker.life, Worker::reaped) == Worker::reaped) return;
  if (worker.never_runs) {
    checker_.spawn_failed = true;
    return shell_.on_never_ran(worker.slot);
  }
  shell_.on_ended(worker.slot, worker.end);
}

void World::signal(int number, int signal) {
  Worker& worker = stage_.worker(number);
  if (worker.life != Worker::running) return;
  if (signal == SIGCONT) return resume(worker);
  if (signal != SIGKILL && !ends_the_job(signal)) return;
  if (!worker.told_to_stop) worker.told_to_stop = stage_.now;
  if (signal != SIGKILL) {
    if (worker.shielded || worker.frozen) return;
    return stage_.timeline.add({.at = stage_.now + stage_.random.up_to(stage_.scenario.pace.notice),
                                .kind = Happening::ends,
                                .worker = number});
  }
  if (!worker.frozen) return exits(worker, {});
  if (worker.stopped) return;
  worker.stopped = true;
  stage_.timeline.add(
      {.at = stage_.now + worker.frozen_for, .kind = Happening::ends, .worker = number});
}

// Some programs treat a request to end as a good end.
void World::take_signal(Worker& worker) {
  const bool well = !worker.frozen && stage_.random.chance(10);
  stage_.ended_early |= well;
  exits(worker, {.well = well});
}

void World::resume(Worker& worker) {
  if (!std::exchange(worker.stopped, false)) return;
  for (Happening& what : std::exchange(worker.held, {})) {
    what.at = stage_.now;
    stage_.timeline.add(what);
  }
}

void World::send(int number, const WorkerMessage& message) {
  Worker& worker = stage_.worker(number);
  if (!worker.connected) return;
  const TimePoint arrives = stage_.now + stage_.random.up_to(stage_.scenario.pace.wire);
  worker.to_worker = std::max(worker.to_worker, arrives);
  Happening what{.at = worker.to_worker, .kind = Happening::fenced, .worker = number};
  if (const auto* round = std::get_if<RoundNotice>(&message)) {
    what.kind = Happening::told;
    what.a = round->round, what.b = round->rank, what.c = round->size;
    worker.asks = false;
  } else if (const auto* fence = std::get_if<FenceNotice>(&message)) {
    what.a = fence->round, what.b = fence->lost;
  }
  stage_.timeline.add(what);
}

// -- The agent's decisions

void World::leader_lost() {
  stage_.trace.say(stage_.now, "the leader is lost");
  checker_.leader_lost = checker_.grown = true;
  checker_.ordered = stage_.now;
  last_harm_ = stage_.now + leaderless_;
  stage_.timeline.add({.at = stage_.now + leaderless_, .kind = Happening::take_over});
}

void World::sees(const JobCore::Event& event) {
  stage_.trace.say(stage_.now, "    job hears {}", words(event));
  checker_.before(event);
}

void World::sees(const JobCore::Action& action) {
  stage_.trace.say(stage_.now, "    job says  {}", words(action));
  checker_.check(action);
}

void World::sees(const AgentCore::Action& action) { checker_.check(action); }

}  // namespace dlaunch::sim
