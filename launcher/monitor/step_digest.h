// StepDigest: from what the hosts of a job tell of their ranks' collectives to what the straggler
// detector is fed with: how late each rank enters them, how long it is in them, and what came over
// each socket in which time. A look asks every host which collectives it knows the times of
// (NodeSpans), then for the times of those that all know (NodeTimes). Entries are compared on the
// leader's clock, with the error that the hosts' clocks have there. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "elastic/straggler_detector.h"
#include "launcher/hosts/monitor_message.h"

namespace dlaunch {

class StepDigest {
 public:
  // Kinds of links. What goes from one host to another is one link, of the lowest ranks there.
  static constexpr int kWithinHost = 1, kBetweenHosts = 2;

  void reset();
  // A new look; the answers to earlier ones are late. nodes: those that have ranks.
  NodeLook begin(std::set<int> nodes);
  // What to ask all of them for, once the last has answered: the collectives done since the last
  // time, if these are more than one.
  std::optional<NodeCut> add(int node, const NodeSpans& spans);
  // Means over these, once the last has answered; nullopt also where ranks, from 0, are missing.
  // Links over which nothing came meanwhile are left out.
  std::optional<StepTimes> add(int node, const NodeTimes& times);

 private:
  struct Seen {  // of a link
    NodeReceived received;
    std::uint64_t done = 0;  // the last collective then
  };
  std::optional<StepTimes> digest();
  std::vector<LinkTimes> links(const std::map<int, int>& nodes);

  std::uint32_t look_ = 0;
  std::set<int> nodes_;
  std::map<int, NodeSpans> spans_;    // by node
  std::map<int, NodeTimes> answers_;  // by node
  std::optional<NodeCut> cut_;
  std::uint64_t done_ = 0;                     // the last collective that was looked at
  std::map<std::pair<int, int>, Seen> links_;  // by sender and receiver
};

}  // namespace dlaunch
