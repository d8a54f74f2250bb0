// NodeSteps: the part of one host's flight records that the leader needs to compare them with those
// of other hosts. The leader first learns which collectives each host has completely, then asks for
// the times of those that every host has. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/flight.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

class NodeSteps {
 public:
  struct Record {  // of a rank
    std::vector<FlightSpan> spans;
    std::vector<FlightReceived> received;
  };
  // ranks: the records of this host's ranks, kept for cut(). nullopt: a rank has done no
  // collective: its program does not use libdlring, or not yet.
  std::optional<NodeSpans> look(std::uint32_t look, std::map<int, Record> ranks);
  // nullopt: some of these collectives are no longer recorded, or that was not the last look.
  std::optional<NodeTimes> cut(const NodeCut& cut) const;

 private:
  std::uint32_t look_ = 0;
  std::map<int, Record> ranks_;
};

}  // namespace dlaunch
