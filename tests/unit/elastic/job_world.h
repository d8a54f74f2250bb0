// A job of JobCore in which nothing takes time: each decision is carried out at once.
#pragma once

#include <signal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "elastic/job_core.h"
#include "tests/unit/start.h"

namespace dlaunch {

inline JobConfig one_on_each_of(int nodes, int min_size, int restarts) {
  JobConfig config{.size = nodes, .min_size = min_size, .max_size = nodes};
  config.restarts.limit.restarts = restarts;
  for (int node = 0; node < nodes; ++node) config.nodes.push_back(node);
  return config;
}

// A job whose processes start at once, and end on an order or when the test says so.
class JobWorld {
 public:
  // absent: nodes.
  explicit JobWorld(JobConfig config, bool elastic = true, const std::vector<int>& absent = {})
      : core(config), elastic_(elastic) {
    for (const int node : absent) feed(JobCore::NodeLost{node});
    feed(JobCore::Start{});
  }

  // Under a new leader, with those processes that `earlier` left behind.
  JobWorld(JobConfig config, const JobWorld& earlier, const std::vector<int>& absent = {})
      : core(config), now(earlier.now), elastic_(earlier.elastic_) {
    JobCore::Resume resume{earlier.core.record(), {}};
    for (const int node : absent) feed(JobCore::NodeLost{node});
    for (const auto& [slot, rank] : earlier.running) {
      const int node = config.nodes.empty() ? 0 : config.nodes[static_cast<std::size_t>(slot)];
      if (std::count(absent.begin(), absent.end(), node) != 0) continue;
      running[slot] = rank;
      JobCore::Found found{.slot = slot, .linked = elastic_, .round = 1};
      if (earlier.left.contains(slot)) {
        found.in_round = found.round = left[slot] = earlier.left.at(slot);
      }
      resume.found.push_back(found);
    }
    announced = earlier.announced;
    feed(resume);
  }

  void feed(const JobCore::Event& event) {
    feed_now(event);
    // What is put off only so that others go first.
    while (core.deadline() && *core.deadline() > now &&
           *core.deadline() <= now + std::chrono::milliseconds(10)) {
      now = *core.deadline();
      feed_now(JobCore::Clock{});
    }
  }
  void feed_now(const JobCore::Event& event) {
    for (const auto& action : core.step(now, event)) {
      std::visit([this](const auto& what) { perform(what); }, action);
    }
    // What the processes do about it, in turn.
    while (!todo_.empty()) {
      const auto next = todo_.front();
      todo_.erase(todo_.begin());
      for (const auto& action : core.step(now, next)) {
        std::visit([this](const auto& what) { perform(what); }, action);
      }
    }
  }
  void fail(Slot slot, bool consequence = false) {
    REQUIRE(running.erase(slot) == 1);
    left.erase(slot);
    feed(JobCore::Ended{slot, false, consequence});
  }
  void succeed(Slot slot) {
    REQUIRE(running.erase(slot) == 1);
    feed(JobCore::Ended{slot, true});
  }
  // A member has noticed that its round is over.
  void rejoin(Slot slot) { feed(JobCore::Ready{slot, left[slot]}); }
  void rejoin_all() {
    const auto members = core_members();
    for (const Slot slot : members) {
      if (running.contains(slot) && left.contains(slot)) rejoin(slot);
    }
  }
  std::vector<Slot> core_members() const { return roster; }

  JobCore core;
  TimePoint now = kStart;
  std::map<Slot, int> running;  // slot -> the rank it was started with
  std::map<Slot, int> left;     // slot -> the last round it was told
  std::vector<Slot> roster;     // as announced
  std::vector<int> announced;   // rounds
  std::vector<int> fences, losts;
  std::vector<Slot> stopped, awaited;
  std::set<int> signals;    // with which
  std::set<Slot> stubborn;  // do not end on an order
  std::set<Slot> frozen;    // not even on SIGKILL
  std::set<Slot> mute;      // do not ask for a round
  std::optional<JobCore::Finish> finish;
  int starts = 0;

 private:
  void perform(const JobCore::StartWorkers& start) {
    for (const auto& place : start.places) {
      CHECK_MESSAGE(!running.contains(place.slot), "a slot is used twice");
      running[place.slot] = place.rank;
      ++starts;
      todo_.push_back(JobCore::Spawned{place.slot});
      if (elastic_ && !mute.contains(place.slot)) todo_.push_back(JobCore::Ready{place.slot, 0});
    }
  }
  void perform(const JobCore::StopWorkers& stop) {
    signals.insert(stop.signal);
    for (const Slot slot : stop.slots) {
      stopped.push_back(slot);
      if (frozen.contains(slot)) continue;
      if (stubborn.contains(slot) && stop.signal != SIGKILL) continue;
      if (running.erase(slot) == 0) continue;
      left.erase(slot);
      todo_.push_back(JobCore::Ended{slot, false});
    }
  }
  void perform(const JobCore::HandOn&) {}
  void perform(const JobCore::Fence& fence) {
    fences.push_back(fence.round);
    losts.push_back(fence.lost);
  }
  void perform(const JobCore::Announce& announce) {
    if (!announced.empty()) CHECK(announce.round > announced.back());
    announced.push_back(announce.round);
    roster = announce.slots;
    const std::set<Slot> once(roster.begin(), roster.end());
    CHECK(once.size() == roster.size());
    for (const Slot slot : roster) {
      CHECK(running.contains(slot));
      left[slot] = announce.round;
    }
  }
  void perform(const JobCore::AwaitEnd& what) { awaited.push_back(what.of.slot); }
  void perform(const JobCore::Finish& how) {
    CHECK_FALSE(finish);
    finish = how;
  }

  const bool elastic_;
  std::vector<JobCore::Event> todo_;
};

inline JobConfig of(int size, int restarts = 0, int spares = 0) {
  return {.size = size,
          .min_size = size,
          .max_size = size,
          .spares = spares,
          .restarts = {.limit = {.restarts = restarts}}};
}

using Slots = std::vector<Slot>;

}  // namespace dlaunch
