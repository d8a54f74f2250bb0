// The job's orders as messages to its nodes: one for each node that the order concerns. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "elastic/job_core.h"
#include "launcher/lead/membership/job_slots.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

// The addresses on which workers of a host may listen, and its rack.
struct NodeAddresses {
  Endpoint master;                  // used if rank 0 runs there
  std::vector<std::int32_t> ports;  // by local rank; empty: no rank has one
  std::string rack = {};            // elastic/rack_order.h; "": unknown
};

struct NodeOrder {
  int node;
  NodeMessage message;
};

// addresses: by node.
std::vector<NodeOrder> orders(const JobCore::StartWorkers& start, const JobCore& job,
                              const JobSlots& slots, const std::vector<NodeAddresses>& addresses);
std::vector<NodeOrder> orders(const JobCore::StopWorkers& stop, const JobSlots& slots);
std::vector<NodeOrder> orders(const JobCore::Announce& announce, const JobSlots& slots);

}  // namespace dlaunch
