// NodeSteps: of the flight records of one host's workers, what the leading dlaunch needs to compare
// them with those of other hosts. First it hears whose collectives are all there, then it asks for
// the times of those that are there on every host. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/flight.h"
#include "launcher/hosts/monitor_message.h"

namespace dlaunch {

class NodeSteps {
 public:
  struct Record {  // of a rank
    std::vector<FlightSpan> spans;
    std::vector<FlightReceived> received;
  };
  // ranks: what each rank of this host has recorded, kept for cut(). nullopt: one of them has done
  // no collective, so that its program does not use libdlring, or not yet.
  std::optional<NodeSpans> look(std::uint32_t look, std::map<int, Record> ranks);
  // nullopt: these are not all there any more, or that was not the last look.
  std::optional<NodeTimes> cut(const NodeCut& cut) const;

 private:
  std::uint32_t look_ = 0;
  std::map<int, Record> ranks_;
};

}  // namespace dlaunch
