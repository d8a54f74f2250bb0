// Who hangs, from the progress of all ranks as it stands: a pure function. What is done about it,
// and how long it may last, is HangJudge's business.
//
// In a group whose members are in collectives, those that have not entered the earliest one
// somebody is still in are missing. At fault is
// - who is missing and in no collective;
// - where all that are missing wait in other groups: nobody here, if those wait for somebody who is
//   at fault or at work; else they wait in a circle;
// - where nobody is missing: who has not come out.
// If nobody is in any collective, all are idle; before the first collective nobody is.
// A stopped rank's `still_since` is to be that of its last sample: who waits for it knows why.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"

namespace dlaunch {

// As /proc/PID/status has it: State, and traced where TracerPid is not 0.
enum class ProcessState { running, sleeping, uninterruptible, stopped, traced };

// Whether time stands still for it.
inline bool is_held(ProcessState state) {
  return state == ProcessState::stopped || state == ProcessState::traced;
}

struct RankProgress {
  struct Position {         // in a group
    std::uint64_t seq = 0;  // of the last collective entered; 0: none yet
    bool inside = false;
    std::uint8_t what = 0;  // index into kCollectiveNames, where seq > 0
    TimePoint still_since{};
  };
  ProcessState state = ProcessState::running;
  TimePoint heard{};          // the last sample
  TimePoint stopped_since{};  // where stopped
  std::map<std::uint64_t, Position> groups;
};
using Progress = std::map<int, RankProgress>;  // by rank

struct Hang {
  // What it is about: the same from one look to the next.
  struct Key {
    enum Kind { stopped, missing, circle, stuck, idle } kind{};
    std::uint64_t group = 0, seq = 0;  // of missing and stuck
    RankSet culprits;
    auto operator<=>(const Key&) const = default;
  };
  Key key;
  int witness = -1;   // who waits for the culprits; -1: nobody else
  Duration waited{};  // since anybody who matters has moved
  std::string sentence;
};

// All but Key::stopped; a circle once for each group in it.
std::vector<Hang> find_hangs(TimePoint now, const Progress& progress);

// Those that are in a collective which this rank, a member of its group, has not entered.
RankSet waiting_for(const Progress& progress, int rank);

RankSet ranks_in(const Progress& progress, ProcessState state);

// For sentences: "rank 0,2", and the verb that goes with it.
inline std::string in_words(const RankSet& ranks) { return "rank " + format_rank_set(ranks); }
inline const char* is(const RankSet& ranks) { return ranks.size() == 1 ? "is" : "are"; }

}  // namespace dlaunch
