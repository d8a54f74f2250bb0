// Finds hanging ranks from the present progress of all ranks: a pure function. HangJudge decides
// what to do about them, and how long a hang may last.
//
// In a group with members in collectives, the missing ranks are those that have not entered the
// earliest collective that some member is still in. At fault is
// - a missing rank that is in no collective;
// - if all missing ranks wait in other groups: none here, if they wait for a rank that is at fault
//   or at work; otherwise they wait in a circle;
// - if no rank is missing: each rank that has not come out.
// If no rank is in any collective, all are idle; but not before the first collective, unless each
// rank sends heartbeats or is watched for output and CPU time. A heartbeat is a motion of its rank.
// Of the ranks that send heartbeats and are in no collective, those are at fault that have not
// moved for long while another rank has moved on: it moved after the middle of that time. If all
// ranks are watched for output and CPU time, those are quiet for which the same holds. A stopped
// rank's `still_since` must be that of its last sample: a rank that waits for it has that excuse.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"

namespace dlaunch {

// Like State in /proc/PID/status, and traced if TracerPid is not 0.
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
  std::optional<TimePoint> beat;  // its last heartbeat; nullopt: it sends none
  // It last wrote output or used CPU time; nullopt: not watched, as there is a better sign.
  std::optional<TimePoint> active;
};
using Progress = std::map<int, RankProgress>;  // by rank

struct Hang {
  // The identity of a hang: the same from one look to the next.
  struct Key {
    enum Kind { stopped, missing, circle, stuck, idle, no_heartbeat, quiet } kind{};
    std::uint64_t group = 0, seq = 0;  // of missing and stuck
    RankSet culprits;
    auto operator<=>(const Key&) const = default;
  };
  Key key;
  RankSet waiting;    // the ranks in the collective; empty: it is none in one
  RankSet busy;       // of Key::quiet: the others, which use CPU time
  int witness = -1;   // a rank that waits for the culprits; -1: none
  Duration waited{};  // since the last motion of a rank that matters
  std::string sentence;
};

// All but Key::stopped; a circle appears once for each group in it.
std::vector<Hang> find_hangs(TimePoint now, const Progress& progress);

// The ranks in a collective that this rank, a member of its group, has not entered.
RankSet waiting_for(const Progress& progress, int rank);

RankSet ranks_in(const Progress& progress, ProcessState state);

// For sentences: "rank 0,2", and its verb.
inline std::string in_words(const RankSet& ranks) { return "rank " + format_rank_set(ranks); }
inline const char* is(const RankSet& ranks) { return ranks.size() == 1 ? "is" : "are"; }
inline const char* has(const RankSet& ranks) { return ranks.size() == 1 ? "has" : "have"; }

}  // namespace dlaunch
