#include "tests/sim/exhaustive.h"

#include <signal.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/random.h"

namespace dlaunch::sim {
namespace {

constexpr int kNobody = -1;

struct Process {
  enum { none, up, dead } life = none;  // dead: its end was not reported yet
  int number = 0;                       // of the process
  bool well = false, blames = false;    // its end
  bool told_to_stop = false;
  bool waits = false;    // it has said Ready
  int said = kNobody;    // its Ready under way: the round it left
  bool heard = false;    // that has arrived
  std::deque<int> mail;  // rounds; fences as negative numbers
  int round = 0, fence = 0;
};

struct Member {
  Slot slot;
  int number;
  bool finished = false;
};

struct State {
  explicit State(const JobConfig& job)
      : core(job), processes(static_cast<std::size_t>(JobCore::slots(job))) {}
  Process& at(Slot slot) { return processes[static_cast<std::size_t>(slot)]; }

  JobCore core;
  TimePoint now{};
  std::vector<Process> processes;
  std::map<int, std::vector<Member>> rounds;  // announced
  int last_number = 0;
  int target = 0;
  int faults = 0, resizes = 0, clocks = 0;  // numbers of events so far
  bool finished = false;
  std::string wrong;
};

// -- What the core's actions do

struct Perform {
  State& state;
  std::deque<JobCore::Event>& events;

  void operator()(const JobCore::StartWorkers& start) {
    for (const auto& place : start.places) {
      Process& process = state.at(place.slot);
      if (process.life != Process::none) state.wrong = "a slot runs two processes";
      process = {.life = Process::up, .number = ++state.last_number};
      events.push_back(JobCore::Spawned{place.slot});
    }
  }
  void operator()(const JobCore::StopWorkers& stop) {
    for (const Slot slot : stop.slots) {
      Process& process = state.at(slot);
      process.told_to_stop = true;
      if (stop.signal == SIGKILL && process.life == Process::up) process.life = Process::dead;
    }
  }
  void operator()(const JobCore::HandOn&) {}
  void operator()(const JobCore::Fence& fence) {
    for (Process& process : state.processes) {
      // Only a worker that has sent Ready once is connected.
      if (process.life == Process::up && (process.heard || process.round > 0)) {
        process.mail.push_back(-fence.round);
      }
    }
  }
  void operator()(const JobCore::Announce& announce) {
    if (!state.rounds.empty() && state.rounds.rbegin()->first >= announce.round) {
      state.wrong = "a round's number is announced twice";
    }
    std::set<Slot> once;
    auto& members = state.rounds[announce.round];
    for (const Slot slot : announce.slots) {
      Process& process = state.at(slot);
      if (!once.insert(slot).second) state.wrong = "a slot has two ranks";
      if (process.life == Process::none) state.wrong = "a member does not run";
      if (!process.heard) state.wrong = "a member did not ask";
      process.heard = false;
      process.mail.push_back(announce.round);
      members.push_back({slot, process.number});
    }
  }
  void operator()(const JobCore::AwaitEnd&) {}
  void operator()(const JobCore::Finish& finish) {
    if (state.finished) state.wrong = "the job ends twice";
    state.finished = true;
    for (const Process& process : state.processes) {
      if (process.life != Process::none) state.wrong = "a process is left behind";
    }
    for (const Process& process : state.processes) {
      const bool member =
          state.core.rank_of(static_cast<Slot>(&process - &state.processes[0])) >= 0;
      if (finish.end == JobEnding::succeeded && member && !process.well) {
        state.wrong = "the job succeeded with a member that did not";
      }
    }
  }
};

void feed(State& state, const JobCore::Event& event) {
  std::deque<JobCore::Event> events{event};
  while (!events.empty()) {
    const JobCore::Event next = events.front();
    events.pop_front();
    for (const auto& action : state.core.step(state.now, next)) {
      std::visit(Perform{state, events}, action);
    }
  }
}

// -- The possible next events

// It can know that its round is over.
bool may_leave(State& state, const Process& process) {
  if (process.waits || process.round == 0) return false;
  if (process.fence > process.round) return true;
  const auto& members = state.rounds.at(process.round);
  return std::any_of(members.begin(), members.end(), [&](const Member& member) {
    if (member.finished) return false;
    const Process& other = state.at(member.slot);
    return other.number != member.number || other.life != Process::up ||
           (other.round == process.round && other.waits) || other.round > process.round;
  });
}

// All members have reached the last barrier.
bool may_finish(State& state, const Process& process) {
  if (process.waits || process.round == 0) return false;
  const auto& members = state.rounds.at(process.round);
  return std::all_of(members.begin(), members.end(), [&](const Member& member) {
    const Process& other = state.at(member.slot);
    return member.finished || (other.number == member.number && other.life == Process::up &&
                               other.round == process.round && !other.waits);
  });
}

void leave(Process& process) {
  process.waits = true;
  process.said = process.round;
}

void take_mail(Process& process) {
  const int what = process.mail.front();
  process.mail.pop_front();
  if (what < 0) {
    process.fence = -what;
  } else {
    process.round = what;
    process.waits = false;
  }
}

enum class Way { ready, mail, ask, leave, finish, stop, end, kill, leave_well, blame };
constexpr int kWays = 10;
constexpr const char* kWayNames[kWays] = {"Ready arrives",
                                          "gets mail",
                                          "asks",
                                          "leaves",
                                          "finishes",
                                          "stops",
                                          "end is seen",
                                          "is killed",
                                          "ends well too early",
                                          "ends as a consequence"};
bool is_fault(Way way) { return way >= Way::kill; }

bool may(State& state, Slot slot, Way way) {
  const Process& process = state.at(slot);
  const bool up = process.life == Process::up;
  switch (way) {
    case Way::ready:
      return process.said != kNobody && process.life != Process::none;
    case Way::mail:
      return up && !process.mail.empty();
    case Way::ask:
      return up && process.round == 0 && !process.waits;
    case Way::leave:
    case Way::blame:
      return up && may_leave(state, process);
    case Way::finish:
      return up && may_finish(state, process);
    case Way::stop:
      return up && process.told_to_stop;
    case Way::end:
      return process.life == Process::dead;
    case Way::kill:
      return up;
    case Way::leave_well:
      return up && process.round == 0 && !process.waits;
  }
  return false;
}

void go(State& state, Slot slot, Way way) {
  Process& process = state.at(slot);
  const auto ends = [&](bool well, bool blames) {
    process.life = Process::dead;
    process.well = well;
    process.blames = blames;
  };
  if (is_fault(way)) ++state.faults;
  switch (way) {
    case Way::ready:
      process.heard = true;
      return feed(state, JobCore::Ready{slot, std::exchange(process.said, kNobody)});
    case Way::mail:
      return take_mail(process);
    case Way::ask:
    case Way::leave:
      return leave(process);
    case Way::finish:
      for (Member& member : state.rounds.at(process.round)) member.finished |= member.slot == slot;
      return ends(true, false);
    case Way::leave_well:
      return ends(true, false);
    case Way::blame:
      return ends(false, true);
    case Way::stop:
    case Way::kill:
      return ends(false, false);
    case Way::end:
      process.life = Process::none;
      process.mail.clear();
      process.said = kNobody;
      return feed(state, JobCore::Ended{slot, process.well, process.blames});
  }
}

// -- The search

class Search {
 public:
  Search(const JobConfig& job, const Bounds& bounds) : job_(job), bounds_(bounds) {}

  Explored run() {
    State first(job_);
    first.target = job_.size;
    feed(first, JobCore::Start{});
    visit(first);
    return std::move(found_);
  }

 private:
  std::uint64_t key(State& state) const;
  void visit(State& state);
  bool try_way(const State& state, Slot slot, Way way);
  void wrong(std::string what) {
    found_.wrong = std::move(what);
    found_.steps = path_;
  }

  const JobConfig job_;
  const Bounds bounds_;
  Explored found_;
  std::vector<std::string> path_;
  std::unordered_set<std::uint64_t> seen_;
};

// Numbers of rounds count from the newest.
std::uint64_t Search::key(State& state) const {
  std::uint64_t hash = 0;
  const auto add = [&](int value) {
    hash = Random(hash ^ (static_cast<std::uint64_t>(value) + 0x100)).next();
  };
  const int round = state.core.round();
  const auto since = [&](int number) { return number == 0 ? 1000 : round - number; };
  for (const int value : {static_cast<int>(state.core.state()), state.core.size(),
                          state.core.restarts_used(), state.target, state.faults, state.resizes,
                          state.clocks, state.core.deadline().has_value() ? 1 : 0,
                          state.rounds.empty() ? 1000 : since(state.rounds.rbegin()->first)}) {
    add(value);
  }
  for (Slot slot = 0; slot < static_cast<Slot>(state.processes.size()); ++slot) {
    const Process& process = state.at(slot);
    for (const int value :
         {static_cast<int>(process.life), process.well ? 1 : 0, process.blames ? 1 : 0,
          process.told_to_stop ? 1 : 0, process.waits ? 1 : 0,
          process.said == kNobody ? -1 : since(process.said), process.heard ? 1 : 0,
          since(process.round), since(process.fence), state.core.rank_of(slot),
          state.core.linked(slot) ? 1 : 0, may_leave(state, process) ? 1 : 0,
          may_finish(state, process) ? 1 : 0, static_cast<int>(process.mail.size())}) {
      add(value);
    }
    for (const int what : process.mail) add(what < 0 ? 2000 + since(-what) : since(what));
    if (process.round == 0) continue;
    for (const Member& member : state.rounds.at(process.round)) {
      add(member.slot);
      add(member.finished ? 2 : state.at(member.slot).number == member.number ? 1 : 0);
    }
  }
  return hash;
}

bool Search::try_way(const State& state, Slot slot, Way way) {
  State next(state);
  path_.push_back(fmt::format("{}: {}", slot, kWayNames[static_cast<int>(way)]));
  go(next, slot, way);
  visit(next);
  path_.pop_back();
  return found_.wrong.empty();
}

void Search::visit(State& state) {
  if (!state.wrong.empty()) return wrong(state.wrong);
  if (state.core.restarts_used() > job_.restarts.limit.restarts) return wrong("too many restarts");
  if (state.finished || !seen_.insert(key(state)).second) return;
  if (++found_.states >= bounds_.states) found_.complete = false;
  if (!found_.complete) return;
  bool goes_on = false;
  for (Slot slot = 0; slot < static_cast<Slot>(state.processes.size()); ++slot) {
    for (int w = 0; w < kWays; ++w) {
      const Way way = static_cast<Way>(w);
      if (is_fault(way) && state.faults >= bounds_.faults) continue;
      if (!may(state, slot, way)) continue;
      goes_on |= !is_fault(way);
      if (!try_way(state, slot, way)) return;
    }
  }
  if (state.core.deadline()) {
    goes_on = true;
    if (state.clocks < bounds_.clocks) {
      State next(state);
      ++next.clocks;
      next.now = *state.core.deadline();
      path_.emplace_back("the clock");
      feed(next, JobCore::Clock{});
      visit(next);
      path_.pop_back();
    }
  }
  if (found_.wrong.empty() && !goes_on)
    return wrong("nothing can happen: " + state.core.waits_for());
  for (int size = 1; size <= job_.max_size && found_.wrong.empty(); ++size) {
    if (state.resizes >= bounds_.resizes || size == state.target) continue;
    State next(state);
    ++next.resizes;
    next.target = size;
    path_.push_back(fmt::format("resize to {}", size));
    feed(next, JobCore::Resize{size});
    visit(next);
    path_.pop_back();
  }
}

}  // namespace

Explored explore(const JobConfig& job, const Bounds& bounds) { return Search(job, bounds).run(); }

}  // namespace dlaunch::sim
