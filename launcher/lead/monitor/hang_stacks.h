// What the stacks of all ranks say about a hang of a program that dlaunch sees from outside only:
// by its heartbeats, its output and its CPU time. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/rank_set.h"
#include "launcher/wire/stack_groups.h"

namespace dlaunch {

struct HangCulprits {
  RankSet ranks;
  std::string note;  // "; rank 1: in time.sleep, train.py:8"; "": the stacks do not tell them apart
};

// Of ranks that all make no progress, those to replace: those for which the others wait, if the
// stacks of all show that, else all of them.
HangCulprits culprits_by_stacks(const RankStacks& stacks, const RankSet& hung);

// Where each of the busy ranks waits for others; nullopt: one of them does not wait, as it computes
// or is not known.
std::optional<std::map<int, std::string>> waits_of(const RankStacks& stacks, const RankSet& busy);

}  // namespace dlaunch
