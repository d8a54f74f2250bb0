// What the stacks of all ranks, PyTorch's Flight Recorder, the record of NCCL's operations and
// NCCL's RAS service, where a program has them, say about a hang of a program that dlaunch sees
// from outside only: by its heartbeats, its output and its CPU time. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rank_set.h"
#include "launcher/lead/monitor/nccl_verdict.h"
#include "launcher/wire/monitor_message.h"
#include "launcher/wire/stack_groups.h"

namespace dlaunch {

struct HangEvidence {
  RankStacks stacks;
  std::map<int, std::vector<NodePosition>> recorded;  // by rank; none without a recorder
  NcclRecords nccl = {};
  NcclRecords ras = {};  // of the ranks that RAS names
  RankSet ras_silent = {};
};

struct HangCulprits {
  RankSet ranks;
  // "; rank 1: in time.sleep, train.py:8"; "": the evidence does not tell them apart
  std::string note;
};

// Of ranks that all make no progress, those to replace: those that have not entered a collective in
// which others wait, or else those for which the others wait by their stacks, or else all.
HangCulprits culprits_of(const HangEvidence& evidence, const RankSet& hung);

// Of these ranks, those that have not called a collective of NCCL in which others wait, or do not
// answer: by the record of its operations, or else by RAS. nullopt: neither tells.
std::optional<NcclVerdict> late_in_nccl(const HangEvidence& evidence, const RankSet& all);

// Where each of the busy ranks waits for others; nullopt: one of them does not wait, as it computes
// or is not known. NCCL's records do not count: a rank may compute while NCCL's operations wait.
std::optional<std::map<int, std::string>> waits_of(const HangEvidence& evidence,
                                                   const RankSet& busy);

}  // namespace dlaunch
