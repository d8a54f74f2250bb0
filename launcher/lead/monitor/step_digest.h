// StepDigest: turns the hosts' reports on their ranks' collectives into the straggler detector's
// input: how late each rank enters them, how long it stays in them, and how much came over each
// socket in which time. A look asks every host for the collectives whose times it knows
// (NodeSpans), then for the times of those that all hosts know (NodeTimes). Entries are compared on
// the leader's clock, within the error of the hosts' clocks there. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "elastic/straggler_detector.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

class StepDigest {
 public:
  // Kinds of links. All traffic from one host to another is one link, of the lowest ranks there.
  static constexpr int kWithinHost = 1, kBetweenHosts = 2;

  void reset();
  // The last look was at these nodes, and not all have answered it, or its cut.
  bool awaits(const std::set<int>& nodes) const { return open_ && nodes == nodes_; }
  // A new look; later answers to earlier ones are ignored. nodes: those that have ranks.
  NodeLook begin(std::set<int> nodes);
  // The question for all nodes, once the last node has answered: the collectives done since the
  // last time, if these are more than one.
  std::optional<NodeCut> add(int node, const NodeSpans& spans);
  // Means over these, once the last node has answered; nullopt also if ranks, from 0, are missing.
  // Links without traffic meanwhile are left out.
  std::optional<StepTimes> add(int node, const NodeTimes& times);

 private:
  struct Seen {  // of a link
    NodeReceived received;
    std::uint64_t done = 0;  // the last collective then
  };
  std::optional<StepTimes> digest();
  std::vector<LinkTimes> links(const std::map<int, int>& nodes);

  std::uint32_t look_ = 0;
  bool open_ = false;
  std::set<int> nodes_;
  std::map<int, NodeSpans> spans_;    // by node
  std::map<int, NodeTimes> answers_;  // by node
  std::optional<NodeCut> cut_;
  std::uint64_t done_ = 0;                     // the last collective of the last look
  std::map<std::pair<int, int>, Seen> links_;  // by sender and receiver
};

}  // namespace dlaunch
