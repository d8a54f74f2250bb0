// World's faults.

#include <signal.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "tests/sim/world.h"

namespace dlaunch::sim {

// A fault that waits for this moment strikes, now or a little later.
void World::reached(const Worker& worker, Moment moment) {
  if (stage_.now > kStart + kFaultsEnd) return;
  for (std::size_t i = 0; i < faults_.size(); ++i) {
    Fault& fault = faults_[i];
    if (fault.moment != moment || fault.harm >= Harm::spawn_fails || struck_[i]) continue;
    if (fault.nth-- > 0) continue;
    struck_[i] = true;
    stage_.timeline.add({.at = stage_.now + fault.at,
                         .kind = Happening::fault,
                         .worker = worker.number,
                         .a = static_cast<int>(i)});
  }
}

void World::harm_new(Worker& worker) {
  if (stage_.now > kStart + kFaultsEnd) return;
  for (std::size_t i = 0; i < faults_.size(); ++i) {
    Fault& fault = faults_[i];
    if (fault.harm < Harm::spawn_fails || struck_[i] || fault.nth-- > 0) continue;
    struck_[i] = true;
    last_harm_ = stage_.now;
    stage_.trace.say(stage_.now, "FAULT: worker {}: {}", worker.number, to_string(fault.harm));
    worker.mute |= fault.harm == Harm::mute;
    worker.shielded |= fault.harm == Harm::shielded;
    worker.frozen |= fault.harm == Harm::frozen;
    worker.frozen_for = fault.lasts;
    worker.never_runs |= fault.harm == Harm::never_runs;
    if (fault.harm != Harm::spawn_fails) continue;
    worker.life = Worker::reaped;
    checker_.spawn_failed = true;
  }
}

void World::strike(int index, int number) {
  const Fault& fault = faults_[static_cast<std::size_t>(index)];
  Worker* worker = number > 0 ? &stage_.worker(number) : anybody();
  last_harm_ = stage_.now;
  if (worker == nullptr) return;
  stage_.trace.say(stage_.now, "FAULT: worker {}: {}", worker->number, to_string(fault.harm));
  fault.harm < Harm::resize ? harm(fault, *worker) : harm_job(fault);
  if (fault.harm != Harm::replay || worker->heard.empty()) return;
  // Picks one that the agent has received before.
  const int n = static_cast<int>(worker->heard.size());
  const int left = worker->heard[static_cast<std::size_t>(stage_.random.below(n))];
  if (worker->life == Worker::reaped || !worker->connected) return;
  shell_.on_ready(worker->slot,
                  {.worker = worker->number, .left = left, .version = worker->version});
}

void World::harm(const Fault& fault, Worker& worker) {
  if (fault.harm == Harm::replace) {
    checker_.ordered = stage_.now;
    return shell_.feed(JobCore::Replace{worker.slot});
  }
  if (worker.life != Worker::running || worker.stopped) return;
  switch (fault.harm) {
    case Harm::fail:
      return exits(worker, {});
    case Harm::blame:
      return exits(worker, {.blames = stage_.random.below(shell_.job().size())});
    case Harm::end_well:
      stage_.ended_early = true;
      return exits(worker, {.well = true});
    case Harm::stop:
      worker.stopped = true;
      last_harm_ = stage_.now + fault.lasts;
      return stage_.timeline.add(
          {.at = stage_.now + fault.lasts, .kind = Happening::goes_on, .worker = worker.number});
    default:
      break;
  }
  exits(worker, {});
  if (fault.harm != Harm::kill_several) return;
  for (int i = 1; i < fault.number; ++i) {
    if (Worker* other = anybody()) exits(*other, {});
  }
}

void World::harm_job(const Fault& fault) {
  switch (fault.harm) {
    case Harm::resize:
      checker_.resized = true;
      checker_.grown |= fault.number > shell_.job().size();
      checker_.ordered = stage_.now;
      return shell_.feed(JobCore::Resize{fault.number});
    case Harm::drain:
      return drain(fault.number);
    case Harm::signal:
      checker_.signalled |= ends_the_job(fault.number);
      return shell_.feed(JobCore::Signal{fault.number});
    case Harm::jump:
      jumped_ += fault.lasts;
      for (const int node : stage_.scenario.job.nodes) shell_.on_attempt(node);
      return;
    case Harm::node:
      return lose_node(fault.number, fault.lasts);
    case Harm::cut:
      return cut_off(fault.number, fault.lasts);
    case Harm::leader:
      if (!shell_.leads() || checker_.finished()) return;
      leaderless_ = fault.lasts;
      return shell_.lose_leader(static_cast<AgentShell::Loss>(fault.number % 3));
    default:
      return;
  }
}

void World::drain(int number) {
  const auto& nodes = stage_.scenario.job.nodes;
  if (nodes.empty()) return;
  checker_.resized = checker_.grown = true;
  checker_.ordered = stage_.now;
  shell_.feed(JobCore::NodeDrain{nodes[static_cast<std::size_t>(number) % nodes.size()]});
}

// The others see the ends of their links.
void World::lose_node(int number, Duration lasts) {
  const auto& nodes = stage_.scenario.job.nodes;
  if (nodes.empty() || checker_.finished()) return;
  const int node = nodes[static_cast<std::size_t>(number) % nodes.size()];
  if (!shell_.has_node(node)) return;
  checker_.ordered = stage_.now;
  checker_.grown = checker_.node_lost = true;
  last_harm_ = stage_.now + lasts;
  forget_workers(node);
  stage_.timeline.add({.at = stage_.now + lasts, .kind = Happening::node_back, .a = node});
  shell_.on_node_lost(node);
}

// nodes: a bit for each. Their processes go on, if they can without the others.
void World::cut_off(int nodes, Duration lasts) {
  const auto& all = stage_.scenario.job.nodes;
  if (all.empty() || checker_.finished()) return;
  const std::set<int> there(all.begin(), all.end());
  std::set<int> cut;
  for (const int node : there) {
    if ((nodes >> node & 1) != 0 && shell_.has_node(node)) cut.insert(node);
  }
  if (cut.empty()) return;
  checker_.ordered = stage_.now;
  checker_.grown = checker_.node_lost = true;
  last_harm_ = stage_.now + lasts;
  for (Worker& worker : stage_.workers) {
    const int node = all[static_cast<std::size_t>(worker.slot)];
    if (worker.life == Worker::reaped || !cut.contains(node)) continue;
    worker.cut_off = worker.end_unknown = true;
  }
  workers_.part();
  for (const int node : cut) {
    stage_.timeline.add({.at = stage_.now + lasts, .kind = Happening::node_back, .a = node});
    shell_.on_node_cut(node);
    attempt(node);
  }
}

// Its dlaunch tries to connect in vain, again and again.
void World::attempt(int node) {
  if (shell_.has_node(node)) return;
  shell_.on_attempt(node);
  const Duration pause = stage_.scenario.job.join_timeout / 10;
  stage_.timeline.add({.at = stage_.now + pause, .kind = Happening::attempt, .a = node});
}

void World::host_gave_up(int node) {
  if (shell_.has_node(node)) stage_.fail("a host gave up its job, though the leader is there");
  forget_workers(node);
}

// They are gone, and no agent reports that. The others see the ends of their links.
void World::forget_workers(int node) {
  for (Worker& worker : stage_.workers) {
    if (node_of(worker) != node) continue;
    // An end that only this host knew is lost with it.
    worker.end_unknown |=
        worker.life == Worker::dead || !shell_.leads() || shell_.is_cut(worker.slot);
    if (worker.life == Worker::reaped) continue;
    if (worker.life == Worker::running && !worker.finished) workers_.cut_links(worker);
    if (worker.life == Worker::running) worker.ended = stage_.now;
    worker.life = Worker::reaped;
  }
}

Worker* World::anybody() {
  std::vector<Worker*> all;
  for (Worker& worker : stage_.workers) {
    if (worker.life == Worker::running && !worker.cut_off) all.push_back(&worker);
  }
  return all.empty()
             ? nullptr
             : all[static_cast<std::size_t>(stage_.random.below(static_cast<int>(all.size())))];
}

}  // namespace dlaunch::sim
