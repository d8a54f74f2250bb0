// Stacks of many ranks, as dump_stacks() prints them: equal ones are grouped, and the rank that the
// others wait for is found among them. Pure.
//
// Two ranks are in one group if their main threads are at the same place of the program: the frames
// from the outermost one to the innermost one of the program itself are equal, and so is the
// function that this one has called. Deeper frames differ between ranks that wait in one call. If a
// worker only waits for a process below it, as a shell does, the stack of that process counts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/rank_set.h"

namespace dlaunch {

using RankStacks = std::map<int, std::vector<std::string>>;  // the lines, by rank

inline constexpr const char* kUnknownPlace = "not known";

struct StackGroup {
  RankSet ranks;
  std::string place;                // "in all_reduce, train.py:88"; kUnknownPlace
  std::vector<std::string> frames;  // the innermost first, without those of the interpreter
  bool known = false;               // a frame was found
  bool waits = false;               // for other ranks, in a call of a library of collectives
  bool stopped = false;             // by a signal
};

// The largest group first; of equal ones the one with the lowest rank.
std::vector<StackGroup> group_stacks(const RankStacks& stacks);
// "ranks 0, 2-7: in all_reduce, train.py:88"
std::string in_words(const StackGroup& group);

struct Suspects {
  RankSet ranks;
  // All other ranks are known to have waited, and this one is the only one that did not.
  bool only_one = false;
};
// The ranks that the others waited for. gave_up: ranks that said so themselves, with or without a
// stack; size: the number of all ranks. No rank is suspected if
// - none is known to wait, or more ranks would be suspected than waited;
// - all wait: unless a single one waits elsewhere than all others, or has not given up as all
// others
//   have; they must be two at least. Nothing need be known of the stack of that last one.
Suspects find_suspects(const std::vector<StackGroup>& groups, const RankSet& gave_up, int size);

}  // namespace dlaunch
